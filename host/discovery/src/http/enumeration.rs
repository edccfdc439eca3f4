//! The enumeration of all records `/v1/enumerate`, which is streamed.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use transom_cluster::{FrameworkId, TaskId};

use crate::enumerate::Enumerator;
use crate::mesos_dns_json::text;
use crate::zone::Zone;

/// The maximum number of enumerations that are read at the same time. Each remembers what it has
/// written, for a large zone in tens of megabytes.
pub(super) const MAX_ENUMERATIONS: usize = 4;
/// The minimum size of a piece, except for the last.
const MIN_PIECE_BYTES: usize = 64 << 10;

/// The enumerate object (specification, part A) in pieces, so that it is never in memory as a whole.
/// Without frameworks its list is null.
pub(super) struct Enumeration {
    enumerator: Enumerator,
    frameworks: std::vec::IntoIter<FrameworkId>,
    /// The framework being written, and its remaining tasks.
    current: Option<(FrameworkId, std::vec::IntoIter<TaskId>)>,
    written: Written,
    /// One of [`MAX_ENUMERATIONS`].
    _permit: OwnedSemaphorePermit,
}

/// The progress of an enumeration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    /// Whether a framework has been written, and whether a task of the present one has.
    Some {
        frameworks: bool,
        tasks: bool,
    },
    All,
}

impl Enumeration {
    pub(super) fn of(zone: Arc<Zone>, permit: OwnedSemaphorePermit) -> Self {
        let enumerator = Enumerator::new(zone);
        Self {
            frameworks: enumerator.frameworks().into_iter(),
            enumerator,
            current: None,
            written: Written::Nothing,
            _permit: permit,
        }
    }

    /// Writes the next part.
    fn write(&mut self, piece: &mut Vec<u8>) {
        let (frameworks, tasks) = match self.written {
            Written::All => return,
            Written::Nothing if self.frameworks.len() == 0 => {
                piece.extend_from_slice(b"{\n  \"frameworks\": null\n }");
                self.written = Written::All;
                return;
            }
            Written::Nothing => {
                piece.extend_from_slice(b"{\n  \"frameworks\": [");
                (false, false)
            }
            Written::Some { frameworks, tasks } => (frameworks, tasks),
        };
        self.written = match self.current.take() {
            None => match self.frameworks.next() {
                None => {
                    piece.extend_from_slice(b"\n  ]\n }");
                    Written::All
                }
                Some(framework) => {
                    piece.extend_from_slice(if frameworks {
                        b",\n   {\n    \"tasks\": ["
                    } else {
                        b"\n   {\n    \"tasks\": ["
                    });
                    let tasks = self.enumerator.tasks(&framework).into_iter();
                    self.current = Some((framework, tasks));
                    Written::Some {
                        frameworks: true,
                        tasks: false,
                    }
                }
            },
            Some((framework, mut remaining_tasks)) => match remaining_tasks.next() {
                None => {
                    piece.extend_from_slice(if tasks {
                        b"\n    ],\n    \"name\": "
                    } else {
                        b"],\n    \"name\": "
                    });
                    piece.extend(text(self.enumerator.name(&framework), 3));
                    piece.extend_from_slice(b"\n   }");
                    Written::Some {
                        frameworks,
                        tasks: false,
                    }
                }
                Some(task) => {
                    let listed = self.enumerator.task(&framework, &task);
                    self.current = Some((framework, remaining_tasks));
                    let new = listed.is_some();
                    if let Some(listed) = listed {
                        piece.extend_from_slice(if tasks { b",\n     " } else { b"\n     " });
                        piece.extend(text(&listed, 4));
                    }
                    Written::Some {
                        frameworks,
                        tasks: tasks || new,
                    }
                }
            },
        };
    }
}

impl Iterator for Enumeration {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        while piece.len() < MIN_PIECE_BYTES && self.written != Written::All {
            self.write(&mut piece);
        }
        (!piece.is_empty()).then(|| piece.into())
    }
}
