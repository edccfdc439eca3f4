//! Limits the attach and detach events. Each of them goes to every stream, so thousands of streams
//! that reconnect together would cause millions of events.

use tokio::time::{Duration, Instant};

/// Up to this number of open streams, each attach and detach is announced.
pub(super) const UNLIMITED_STREAMS: usize = 100;
/// With more open streams, the announcements per second.
pub(super) const MAX_PER_SECOND: u32 = 10;

/// Counts open streams and announcements.
#[derive(Debug)]
pub(super) struct Announcements {
    open: usize,
    second: Instant,
    sent: u32,
}

impl Announcements {
    pub(super) fn new() -> Self {
        Self {
            open: 0,
            second: Instant::now(),
            sent: 0,
        }
    }

    /// Counts a new stream. Returns whether its attach event is published.
    pub(super) fn attach(&mut self) -> bool {
        self.open += 1;
        self.permit(self.open)
    }

    /// Counts a closed stream. Returns whether its detach event is published.
    pub(super) fn detach(&mut self) -> bool {
        let before = self.open;
        self.open = self.open.saturating_sub(1);
        self.permit(before)
    }

    fn permit(&mut self, streams: usize) -> bool {
        if streams <= UNLIMITED_STREAMS {
            return true;
        }
        let now = Instant::now();
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.sent = 0;
        }
        self.sent += 1;
        self.sent <= MAX_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn storm_is_announced_ten_times_a_second() {
        let mut announcements = Announcements::new();
        let attached = |announcements: &mut Announcements, count: usize| {
            (0..count).filter(|_| announcements.attach()).count()
        };
        assert_eq!(attached(&mut announcements, UNLIMITED_STREAMS), UNLIMITED_STREAMS);
        assert_eq!(attached(&mut announcements, 500), MAX_PER_SECOND as usize);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(attached(&mut announcements, 500), MAX_PER_SECOND as usize);
        let detached = (0..1000).filter(|_| announcements.detach()).count();
        assert_eq!(
            detached, 0,
            "no announcement is left in this second, and more than a hundred streams are open"
        );
        let rest = (0..100).filter(|_| announcements.detach()).count();
        assert_eq!(rest, 100);
    }
}
