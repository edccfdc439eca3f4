//! Host ports: which free ports an instance is allocated.
//!
//! Requests for fixed ports and ranges are served first, in the order of the ends of their ranges.
//! Each gets the lowest free port in its range, so an instance gets its ports whenever an
//! assignment exists. Ports for a range that no other request of the instance overlaps, and for
//! requests of any port, are drawn at random, so that a port that was just released is not reused
//! immediately. Reserved ports are used before unreserved ones, because no other framework can use
//! them.
//!
//! Requests for any port avoid the instance's ranges as long as possible, so the number of
//! instances that fit does not depend on the random choice.

use rand::Rng;

use crate::PortRequest;

/// First and last port, inclusive.
pub(super) type Span = (u16, u16);

/// The ports that one instance requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PortRequests {
    requests: usize,
    /// The requests for fixed ports and ranges, in the order in which they are served.
    bound: Vec<BoundRequest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BoundRequest {
    /// Index of the request.
    request: usize,
    span: Span,
    /// Whether no other bound request overlaps it.
    is_disjoint: bool,
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
        let mut bound: Vec<BoundRequest> = spans
            .iter()
            .map(|&(request, span)| BoundRequest {
                request,
                span,
                is_disjoint: !spans
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

    /// Whether no port is requested.
    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// The spans of the fixed ports and ranges.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.bound.iter().map(|bound| bound.span)
    }

    /// How many instances get their ports, at most `limit`. `total` is the number of free ports;
    /// the actual ports matter only to fixed ports and ranges.
    pub(super) fn capacity(&self, total: u64, limit: u64, free: impl FnOnce() -> Free) -> u64 {
        let max_instances = total
            .checked_div(self.requests as u64)
            .map_or(limit, |instances| instances.min(limit));
        if self.bound.is_empty() || max_instances == 0 {
            return max_instances;
        }
        let (mut free, mut lowest) = (free(), Lowest);
        (0..max_instances)
            .take_while(|_| self.take(&mut free, &mut lowest).is_some())
            .count() as u64
    }

    /// Allocates the ports of one instance, in the order of the requests, each with the index of
    /// its resource. `None` if not all are available; `free` is then invalid.
    pub(super) fn take(&self, free: &mut Free, draw: &mut impl Draw) -> Option<Vec<(usize, u16)>> {
        let mut ports = vec![None; self.requests];
        for bound in &self.bound {
            let port = if bound.is_disjoint {
                free.any_within(bound.span, draw)
            } else {
                free.lowest_within(bound.span)
            };
            ports[bound.request] = Some(free.remove(port?));
        }
        let spans: Vec<Span> = self.spans().collect();
        for slot in ports.iter_mut().filter(|slot| slot.is_none()) {
            let port = free.any_outside(&spans, draw).or_else(|| free.highest());
            *slot = Some(free.remove(port?));
        }
        ports.into_iter().collect()
    }
}

/// Chooses one of several equally good ports.
pub(super) trait Draw {
    /// A number in `0..count`.
    fn draw(&mut self, count: u32) -> u32;
}

impl<R: Rng> Draw for R {
    fn draw(&mut self, count: u32) -> u32 {
        self.random_range(0..count)
    }
}

/// Always chooses the lowest port; used for counting only.
pub(super) struct Lowest;

impl Draw for Lowest {
    fn draw(&mut self, _count: u32) -> u32 {
        0
    }
}

/// Usable ports by resource; reserved resources come first.
#[derive(Clone, Debug)]
pub(super) struct Free(pub(super) Vec<(usize, Vec<Span>)>);

impl Free {
    fn spans(&self) -> impl Iterator<Item = (usize, Span)> + '_ {
        self.0
            .iter()
            .flat_map(|(resource_index, spans)| spans.iter().map(|span| (*resource_index, *span)))
    }

    fn lowest_within(&self, within: Span) -> Option<(usize, u16)> {
        let parts = self
            .spans()
            .filter_map(|(resource_index, span)| Some((resource_index, overlap(span, within)?.0)));
        parts.min_by_key(|(_, port)| *port)
    }

    fn highest(&self) -> Option<(usize, u16)> {
        self.spans()
            .map(|(resource_index, span)| (resource_index, span.1))
            .max_by_key(|(_, port)| *port)
    }

    fn any_within(&self, within: Span, draw: &mut impl Draw) -> Option<(usize, u16)> {
        self.draw_port(draw, |span| overlap(span, within).into_iter().collect())
    }

    fn any_outside(&self, outside: &[Span], draw: &mut impl Draw) -> Option<(usize, u16)> {
        self.draw_port(draw, |span| {
            outside.iter().fold(vec![span], |remaining, excluded| {
                remaining
                    .into_iter()
                    .flat_map(|span| subtract(span, *excluded))
                    .collect()
            })
        })
    }

    /// Draws one of the ports that `select` selects from each span, from the first resource that has
    /// any.
    fn draw_port(&self, draw: &mut impl Draw, select: impl Fn(Span) -> Vec<Span>) -> Option<(usize, u16)> {
        self.0.iter().find_map(|(resource_index, spans)| {
            let parts: Vec<Span> = spans.iter().flat_map(|span| select(*span)).collect();
            let total: u32 = parts.iter().map(|span| length(*span)).sum();
            let mut skip = (total > 0).then(|| draw.draw(total))?;
            for span in parts {
                if skip < length(span) {
                    return Some((*resource_index, span.0 + u16::try_from(skip).ok()?));
                }
                skip -= length(span);
            }
            None
        })
    }

    fn remove(&mut self, (resource_index, port): (usize, u16)) -> (usize, u16) {
        let spans = self.0.iter_mut().find(|(other, _)| *other == resource_index);
        if let Some((_, spans)) = spans {
            *spans = std::mem::take(spans)
                .into_iter()
                .flat_map(|span| subtract(span, (port, port)))
                .collect();
        }
        (resource_index, port)
    }
}

/// The number of ports.
pub(super) fn count(spans: &[Span]) -> u64 {
    spans.iter().map(|span| u64::from(length(*span))).sum()
}

fn length((first, last): Span) -> u32 {
    u32::from(last - first) + 1
}

pub(super) fn overlap(one: Span, other: Span) -> Option<Span> {
    let common = (one.0.max(other.0), one.1.min(other.1));
    (common.0 <= common.1).then_some(common)
}

/// The parts of a span that are not in `excluded`.
fn subtract(span: Span, excluded: Span) -> impl Iterator<Item = Span> {
    let (below, above) = match overlap(span, excluded) {
        None => (Some(span), None),
        Some((first, last)) => (
            (span.0 < first).then(|| (span.0, first - 1)),
            (last < span.1).then(|| (last + 1, span.1)),
        ),
    };
    below.into_iter().chain(above)
}
