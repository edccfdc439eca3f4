//! One part of a group's subscribers. Each part has its own task, so that all cores deliver to a
//! large group.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::metrics::Metrics;
use super::signals::Signals;
use super::stream::{Chunk, Subscriber};

/// Capacity of the queue of a part; when it is full, the group waits.
const QUEUE_CAPACITY: usize = 16;
/// The maximum number of parts of a group.
const MAX_SHARDS: usize = 16;
/// With this number of subscribers, departed ones are removed when others join.
const PRUNE_THRESHOLD: usize = 64;

/// The messages to a part, in order.
#[derive(Debug)]
enum ShardMessage {
    Deliver(Chunk),
    Add(Vec<Subscriber>),
}

/// The parts of a group.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Vec<mpsc::Sender<ShardMessage>>,
    /// The index of the part that gets the next subscriber.
    turn: usize,
}

impl Shards {
    /// Starts one part for each core.
    pub(super) fn start(
        signals: &Arc<Signals>,
        metrics: &Metrics,
        tracker: &tokio_util::task::TaskTracker,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = (0..cores.min(MAX_SHARDS)).map(|_| {
            let (queue, messages) = mpsc::channel(QUEUE_CAPACITY);
            tracker.spawn(run(Arc::clone(signals), messages, metrics.clone()));
            queue
        });
        Self {
            shards: shards.collect(),
            turn: 0,
        }
    }

    /// Adds subscribers, which get the following chunks.
    pub(super) async fn add(&mut self, subscribers: Vec<Subscriber>) {
        let mut parts: Vec<Vec<Subscriber>> = self.shards.iter().map(|_| Vec::new()).collect();
        for subscriber in subscribers {
            if let Some(part) = parts.get_mut(self.turn) {
                part.push(subscriber);
            }
            self.turn = (self.turn + 1) % self.shards.len().max(1);
        }
        for (shard, part) in self.shards.iter().zip(parts) {
            if !part.is_empty() {
                // An error means that the group and its subscribers have ended.
                let _ = shard.send(ShardMessage::Add(part)).await;
            }
        }
    }

    /// Queues a chunk for all subscribers.
    pub(super) async fn deliver(&self, chunk: &Chunk) {
        for shard in &self.shards {
            let _ = shard.send(ShardMessage::Deliver(chunk.clone())).await;
        }
    }
}

/// Serves a part until its group drops the queue.
async fn run(signals: Arc<Signals>, mut messages: mpsc::Receiver<ShardMessage>, metrics: Metrics) {
    let mut subscribers: Vec<Subscriber> = Vec::new();
    let mut pruned = PRUNE_THRESHOLD;
    while let Some(message) = messages.recv().await {
        match message {
            ShardMessage::Deliver(chunk) => {
                let before = subscribers.len();
                let mut departed = 0;
                subscribers.retain(|subscriber| {
                    if subscriber.has_left() {
                        departed += 1;
                        return false;
                    }
                    subscriber.offer(chunk.clone())
                });
                let delivered = subscribers.len() as u64;
                metrics.delivered.inc_by(delivered * u64::from(chunk.events));
                metrics
                    .closed
                    .inc_by((before - subscribers.len() - departed) as u64);
            }
            ShardMessage::Add(mut others) => {
                subscribers.append(&mut others);
                // A departed subscriber is otherwise only detected with the next chunk, which may
                // never come.
                if subscribers.len() >= 2 * pruned {
                    subscribers.retain(|subscriber| !subscriber.has_left());
                    pruned = subscribers.len().max(PRUNE_THRESHOLD);
                }
            }
        }
    }
    if let Some(reason) = signals.reason() {
        for subscriber in &subscribers {
            subscriber.close(reason);
        }
    }
}
