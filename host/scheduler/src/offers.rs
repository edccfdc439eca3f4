//! Offers that are ours until we answer, and when to ask for more or for none.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use transom_cluster::{OfferId, v1};

use crate::matching::Bin;

/// The outstanding offers, in the order in which they came. Those that come while a pass over the others is under way
/// are kept for the next one.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    bins: Vec<Bin>,
    later: Vec<Bin>,
    /// Not to be put to anything, only to be declined.
    unwanted: Vec<OfferId>,
    /// Since when a pass goes on that could not be made in one round.
    pass_since: Option<Instant>,
}

impl Pool {
    /// Takes an offer in; `agent` is its agent's handle.
    pub(crate) fn add(&mut self, offer: &v1::Offer, agent: u32) {
        let bins = if self.pass_since.is_some() {
            &mut self.later
        } else {
            &mut self.bins
        };
        bins.push(Bin::new(offer, agent));
    }

    /// An offer that is no longer good, or was used.
    pub(crate) fn remove(&mut self, offer: &OfferId) {
        for bins in [&mut self.bins, &mut self.later] {
            bins.retain(|bin| bin.offer != *offer);
        }
        self.unwanted.retain(|unwanted| unwanted != offer);
    }

    /// Nothing is to be launched on this agent: what it offered is to be declined, should it be good still.
    pub(crate) fn remove_agent(&mut self, agent: u32) {
        for bins in [&mut self.bins, &mut self.later] {
            let away = bins.extract_if(.., |bin| bin.agent == agent);
            self.unwanted.extend(away.map(|bin| bin.offer));
        }
    }

    pub(crate) fn remove_all(&mut self, offers: &BTreeSet<OfferId>) {
        self.bins.retain(|bin| !offers.contains(&bin.offer));
    }

    /// There is more to do with these offers, in another round.
    pub(crate) fn keep(&mut self, now: Instant) {
        self.pass_since.get_or_insert(now);
    }

    /// Since when a pass has been under way; `None` before its first round and after its last one.
    pub(crate) fn pass_since(&self) -> Option<Instant> {
        self.pass_since
    }

    /// Nothing more is to be done with these offers. Whether that took several rounds.
    pub(crate) fn end_pass(&mut self) -> bool {
        self.pass_since.take().is_some()
    }

    /// Takes out what a pass has left over; the answer is to be declined. Those that came meanwhile are next.
    pub(crate) fn take(&mut self) -> Vec<OfferId> {
        let tried = std::mem::replace(&mut self.bins, std::mem::take(&mut self.later));
        let unwanted = self.unwanted.drain(..);
        tried.into_iter().map(|bin| bin.offer).chain(unwanted).collect()
    }

    /// The subscription ended, and with it all offers.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn bins(&self) -> &[Bin] {
        &self.bins
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }
}

/// What to tell the master about our appetite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Offers again, also those we refused.
    Revive,
    /// No more offers for now.
    Suppress,
}

/// Decides when to revive and suppress.
///
/// A revival calls back offers that were refused, and the master looks at every agent for it. For what waits because it
/// has found no place, that is done at most once per interval. What was just wanted has not been put to any offer yet and
/// calls them back at once, as long as that pays: after each such revival that nothing was launched upon, the next one
/// waits longer, up to the interval. So the number of revivals follows that of launches, and not that of wishes.
/// Suppressed is after an interval without demand.
#[derive(Debug)]
pub(crate) struct Appetite {
    interval: Duration,
    suppressed: bool,
    wanted: bool,
    /// Something is wanted that no offer has been tried for.
    fresh: bool,
    /// Revivals for something new since the last launch.
    in_vain: u32,
    last_revive: Option<Instant>,
    idle_since: Option<Instant>,
}

/// Revivals in vain before the whole interval has to pass; each one before it halves what has to.
const MOST_IN_VAIN: u32 = 5;

impl Appetite {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            suppressed: false,
            wanted: false,
            fresh: false,
            in_vain: 0,
            last_revive: None,
            idle_since: None,
        }
    }

    /// A new subscription gets all offers by itself.
    pub(crate) fn subscribed(&mut self, now: Instant) {
        (self.suppressed, self.wanted, self.fresh, self.idle_since) = (false, false, false, None);
        // Its offers are on their way, as after a revival.
        (self.in_vain, self.last_revive) = (1, Some(now));
    }

    /// Something may fit now that did not before: offers refused earlier are wanted again.
    pub(crate) fn whet(&mut self) {
        self.wanted = true;
    }

    /// The same for something that was just wanted.
    pub(crate) fn whet_for_new(&mut self) {
        (self.wanted, self.fresh) = (true, true);
    }

    /// Offers were of use.
    pub(crate) fn fed(&mut self) {
        self.in_vain = 0;
    }

    /// What to ask now, `hungry` meaning that some task may be launched at once.
    pub(crate) fn ask(&mut self, hungry: bool, now: Instant) -> Option<Ask> {
        if hungry {
            self.idle_since = None;
            self.wanted |= self.suppressed;
            if self.wanted && self.revivable().is_none_or(|at| at <= now) {
                if self.fresh {
                    self.in_vain = self.in_vain.saturating_add(1).min(MOST_IN_VAIN);
                }
                (self.wanted, self.suppressed, self.fresh) = (false, false, false);
                self.last_revive = Some(now);
                return Some(Ask::Revive);
            }
            return None;
        }
        (self.wanted, self.fresh) = (false, false);
        let since = *self.idle_since.get_or_insert(now);
        if !self.suppressed && now >= since + self.interval {
            self.suppressed = true;
            return Some(Ask::Suppress);
        }
        None
    }

    /// The call did not reach the master: ask again.
    pub(crate) fn failed(&mut self, ask: Ask) {
        match ask {
            Ask::Revive => self.wanted = true,
            Ask::Suppress => (self.suppressed, self.idle_since) = (false, None),
        }
    }

    /// When [`Appetite::ask`] may have something new to say.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.wanted {
            return self.revivable();
        }
        self.idle_since
            .filter(|_| !self.suppressed)
            .map(|since| since + self.interval)
    }

    fn revivable(&self) -> Option<Instant> {
        let pause = match self.in_vain {
            0 if self.fresh => Duration::ZERO,
            in_vain if self.fresh => self.interval / 2_u32.pow(MOST_IN_VAIN - in_vain.min(MOST_IN_VAIN)),
            _ => self.interval,
        };
        self.last_revive.map(|last| last + pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppresses_when_idle_for_long_and_revives_when_hungry() {
        let start = Instant::now();
        let second = |n: u64| start + Duration::from_secs(n);
        let mut appetite = Appetite::new(Duration::from_secs(5));
        appetite.subscribed(start);
        // Second, hungry, something new to try, what is asked.
        let table = [
            (0, true, false, None),
            (1, false, false, None),
            (5, false, false, None),
            (6, false, false, Some(Ask::Suppress)),
            (7, false, false, None),
            (8, true, true, Some(Ask::Revive)),
            (9, true, true, None),
            (12, true, false, None),
            (13, true, false, Some(Ask::Revive)),
            (30, true, false, None),
            (31, true, true, Some(Ask::Revive)),
            (40, false, true, None),
            (44, true, false, None),
            (45, false, false, None),
            (50, false, false, Some(Ask::Suppress)),
        ];
        for (at, hungry, fresh, expected) in table {
            if fresh {
                appetite.whet();
            }
            assert_eq!(appetite.ask(hungry, second(at)), expected, "second {at}");
        }
    }

    #[test]
    fn what_is_new_calls_offers_back_at_once_as_long_as_that_pays() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let mut appetite = Appetite::new(Duration::from_millis(160));
        appetite.subscribed(start);
        appetite.fed();
        // One after the other, each of them launched: nobody waits for an interval.
        for ms in [1, 2, 3] {
            appetite.whet_for_new();
            assert_eq!(appetite.ask(true, after(ms)), Some(Ask::Revive), "after {ms} ms");
            appetite.fed();
            // A place that was left is no hurry.
            appetite.whet();
            assert_eq!(appetite.ask(true, after(ms)), None);
            assert_eq!(appetite.next(), Some(after(ms + 160)));
            assert_eq!(appetite.ask(false, after(ms)), None);
        }
        // Nothing comes of them: each waits longer than the one before, up to the interval.
        let mut revived = Vec::new();
        for ms in 10..1000 {
            appetite.whet_for_new();
            revived.extend(appetite.ask(true, after(ms)).map(|_| ms));
        }
        assert_eq!(revived, [10, 20, 40, 80, 160, 320, 480, 640, 800, 960]);
        appetite.fed();
        assert_eq!(appetite.ask(false, after(1000)), None);
        // Places that others leave, and that are of no use to those who wait, do not slow down who is new.
        for ms in [2000, 2160, 2320] {
            appetite.whet();
            assert_eq!(appetite.ask(true, after(ms)), Some(Ask::Revive), "after {ms} ms");
            assert_eq!(appetite.ask(true, after(ms + 1)), None);
        }
        appetite.whet_for_new();
        assert_eq!(appetite.ask(true, after(2321)), Some(Ask::Revive));
        appetite.fed();
        appetite.whet_for_new();
        assert_eq!(appetite.ask(true, after(2322)), Some(Ask::Revive));
    }

    #[test]
    fn what_an_agent_that_is_away_has_offered_is_declined_and_not_tried() {
        let mut pool = Pool::default();
        let offer = |id: &str, agent: &str| crate::testing::offer(id, agent, 1.0, &[]);
        pool.add(&offer("o1", "a1"), 1);
        pool.add(&offer("o2", "a2"), 2);
        pool.keep(Instant::now());
        pool.add(&offer("o3", "a1"), 1);
        pool.add(&offer("o4", "a1"), 1);
        pool.remove_agent(1);
        let tried: Vec<&str> = pool.bins().iter().map(|bin| bin.offer.as_str()).collect();
        assert_eq!(tried, ["o2"]);
        // The master has taken one back by itself.
        pool.remove(&"o3".into());
        assert!(pool.end_pass());
        let declined: Vec<String> = pool.take().iter().map(ToString::to_string).collect();
        assert_eq!(declined, ["o2", "o1", "o4"]);
        assert!(pool.take().is_empty() && pool.is_empty());
    }

    #[test]
    fn what_did_not_reach_the_master_is_asked_again() {
        let start = Instant::now();
        let mut appetite = Appetite::new(Duration::ZERO);
        assert_eq!(appetite.ask(false, start), Some(Ask::Suppress));
        appetite.failed(Ask::Suppress);
        assert_eq!(appetite.ask(false, start), Some(Ask::Suppress));
        assert_eq!(appetite.ask(true, start), Some(Ask::Revive));
        appetite.failed(Ask::Revive);
        assert_eq!(appetite.next(), Some(start));
        assert_eq!(appetite.ask(true, start), Some(Ask::Revive));
    }
}
