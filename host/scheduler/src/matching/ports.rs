//! Host ports: which of the free ones an instance gets.
//!
//! Requests that are bound to certain ports go first, the one whose range ends first before the others, each to
//! the lowest free port it may have: so an instance gets its ports whenever there is a way to give them all
//! out. A range that no other request of the instance touches, and ports without any wish, are drawn at random,
//! so that a port that was just left is not taken up again at once. Reserved ports go before unreserved ones:
//! nobody else can have them.
//!
//! Ports without a wish stay out of the instance's ranges as long as there are others. How many instances fit
//! does therefore not depend on what is drawn.

use rand::Rng;

use crate::PortRequest;

/// From first to last, both included.
pub(super) type Span = (u16, u16);

/// The ports that one instance port_requests.
#[derive(Clone, Debug)]
pub(super) struct PortRequests {
    requests: usize,
    /// Those that are bound to certain ports, in the order in which they are served.
    bound: Vec<Bound>,
}

#[derive(Clone, Debug)]
struct Bound {
    /// Which request it is.
    request: usize,
    span: Span,
    /// No other bound request wants any of these ports.
    alone: bool,
}

impl PortRequests {
    pub(super) fn new(requests: &[PortRequest]) -> Self {
        let bound = requests
            .iter()
            .enumerate()
            .filter_map(|(at, request)| match request {
                PortRequest::Random => None,
                PortRequest::Fixed(port) => Some((at, (*port, *port))),
                PortRequest::Range(first, last) => Some((at, (*first, *last))),
            });
        let spans: Vec<(usize, Span)> = bound.collect();
        let mut bound: Vec<Bound> = spans
            .iter()
            .map(|&(request, span)| Bound {
                request,
                span,
                alone: !spans
                    .iter()
                    .any(|&(other, theirs)| other != request && overlap(span, theirs).is_some()),
            })
            .collect();
        bound.sort_by_key(|bound| (bound.span.1, bound.span.0));
        Self {
            requests: requests.len(),
            bound,
        }
    }

    /// No port is wished.
    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Those of requests that are bound to certain ports.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.bound.iter().map(|bound| bound.span)
    }

    /// How many instances find their ports, at most `limit`. `total`: how many ports are free; which ones they
    /// are matters only to requests that are bound to some.
    pub(super) fn room(&self, total: u64, limit: u64, free: impl FnOnce() -> Free) -> u64 {
        let most = total
            .checked_div(self.requests as u64)
            .map_or(limit, |fits| fits.min(limit));
        if self.bound.is_empty() || most == 0 {
            return most;
        }
        let (mut free, mut lowest) = (free(), Lowest);
        (0..most)
            .take_while(|_| self.take(&mut free, &mut lowest).is_some())
            .count() as u64
    }

    /// One instance's ports, in the order of the requests, each with the stock it comes from. `None` when they
    /// cannot all be had; then `free` is good for nothing any more.
    pub(super) fn take(&self, free: &mut Free, draw: &mut impl Draw) -> Option<Vec<(usize, u16)>> {
        let mut given = vec![None; self.requests];
        for bound in &self.bound {
            let port = if bound.alone {
                free.any_within(bound.span, draw)
            } else {
                free.lowest_within(bound.span)
            };
            given[bound.request] = Some(free.remove(port?));
        }
        let spans: Vec<Span> = self.spans().collect();
        for place in given.iter_mut().filter(|place| place.is_none()) {
            let port = free.any_outside(&spans, draw).or_else(|| free.highest());
            *place = Some(free.remove(port?));
        }
        given.into_iter().collect()
    }
}

/// How one of several ports that are equally good is chosen.
pub(super) trait Draw {
    /// One of `0..count`.
    fn draw(&mut self, count: u32) -> u32;
}

impl<R: Rng> Draw for R {
    fn draw(&mut self, count: u32) -> u32 {
        self.random_range(0..count)
    }
}

/// For counting only.
struct Lowest;

impl Draw for Lowest {
    fn draw(&mut self, _count: u32) -> u32 {
        0
    }
}

/// Ports that may be used, by the stock they belong to; reserved stocks first.
#[derive(Clone, Debug)]
pub(super) struct Free(pub(super) Vec<(usize, Vec<Span>)>);

impl Free {
    fn spans(&self) -> impl Iterator<Item = (usize, Span)> + '_ {
        self.0
            .iter()
            .flat_map(|(stock, spans)| spans.iter().map(|span| (*stock, *span)))
    }

    fn lowest_within(&self, within: Span) -> Option<(usize, u16)> {
        let parts = self
            .spans()
            .filter_map(|(stock, span)| Some((stock, overlap(span, within)?.0)));
        parts.min_by_key(|(_, port)| *port)
    }

    fn highest(&self) -> Option<(usize, u16)> {
        self.spans()
            .map(|(stock, span)| (stock, span.1))
            .max_by_key(|(_, port)| *port)
    }

    fn any_within(&self, within: Span, draw: &mut impl Draw) -> Option<(usize, u16)> {
        self.drawn(draw, |span| overlap(span, within).into_iter().collect())
    }

    fn any_outside(&self, outside: &[Span], draw: &mut impl Draw) -> Option<(usize, u16)> {
        self.drawn(draw, |span| {
            outside.iter().fold(vec![span], |left, hole| {
                left.into_iter().flat_map(|span| without(span, *hole)).collect()
            })
        })
    }

    /// Any of the ports that `part` leaves of each span, of the first stock that has one.
    fn drawn(&self, draw: &mut impl Draw, part: impl Fn(Span) -> Vec<Span>) -> Option<(usize, u16)> {
        self.0.iter().find_map(|(stock, spans)| {
            let parts: Vec<Span> = spans.iter().flat_map(|span| part(*span)).collect();
            let total: u32 = parts.iter().map(|span| length(*span)).sum();
            let mut skip = (total > 0).then(|| draw.draw(total))?;
            for span in parts {
                if skip < length(span) {
                    return Some((*stock, span.0 + u16::try_from(skip).ok()?));
                }
                skip -= length(span);
            }
            None
        })
    }

    fn remove(&mut self, (stock, port): (usize, u16)) -> (usize, u16) {
        let spans = self.0.iter_mut().find(|(other, _)| *other == stock);
        if let Some((_, spans)) = spans {
            *spans = std::mem::take(spans)
                .into_iter()
                .flat_map(|span| without(span, (port, port)))
                .collect();
        }
        (stock, port)
    }
}

/// How many ports these are.
pub(super) fn count(spans: &[Span]) -> u64 {
    spans.iter().map(|span| u64::from(length(*span))).sum()
}

fn length((first, last): Span) -> u32 {
    u32::from(last - first) + 1
}

pub(super) fn overlap(one: Span, other: Span) -> Option<Span> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 <= both.1).then_some(both)
}

/// What is left of a span.
fn without(span: Span, hole: Span) -> impl Iterator<Item = Span> {
    let (below, above) = match overlap(span, hole) {
        None => (Some(span), None),
        Some((first, last)) => (
            (span.0 < first).then(|| (span.0, first - 1)),
            (last < span.1).then(|| (last + 1, span.1)),
        ),
    };
    below.into_iter().chain(above)
}
