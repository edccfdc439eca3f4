//! Resources of agents, offers and tasks: amounts, each with its reservations and its volume.
//!
//! Most resources are neither reserved nor a volume. The others are kept separate by their
//! reservations (the last one applies) and by the `DiskInfo` of their disk or volume. A disk of the
//! type `MOUNT` is never divided.

use super::{amounts::Amounts, json as doc};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, path::PathBuf};

/// A set of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resources {
    /// One entry per tag; none is empty.
    parts: Vec<(Tag, Amounts)>,
}

/// The properties that keep resources separate. By default they are unreserved and not a volume.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tag {
    /// `Resource.ReservationInfo`, each refining the previous one.
    reservations: Vec<Value>,
    /// `Resource.DiskInfo` of a persistent volume or of a disk other than the root disk.
    disk: Option<Value>,
}

/// The format of reservations in documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationFormat {
    /// `reservations`, and no `role`: for frameworks with `RESERVATION_REFINEMENT`.
    Refined,
    /// `role` and `reservation`: for frameworks without that capability.
    Legacy,
    /// Both, as in the documents for operators.
    Both,
}

/// A persistent volume in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) role: String,
    pub(crate) id: String,
    /// Its path in the sandbox.
    pub(crate) path: String,
    /// The root of its disk; `None`: the agent's work directory.
    pub(crate) root: Option<PathBuf>,
}

impl Resources {
    /// An agent's total.
    pub(crate) fn total(cpus: f64, mem: f64, disk: f64, ports: (u64, u64)) -> Self {
        Self::of(Tag::default(), &Amounts::total(cpus, mem, disk, ports))
    }

    /// A disk with this `DiskInfo.Source`.
    pub(crate) fn disk(source: &Value, size: f64) -> Self {
        let tag = Tag {
            reservations: Vec::new(),
            disk: Some(json!({ "source": source })),
        };
        Self::of(tag, &Amounts::total(0.0, 0.0, size, (1, 0)))
    }

    fn of(tag: Tag, amounts: &Amounts) -> Self {
        let mut result = Self::default();
        result.add_part(tag, amounts);
        result
    }

    fn add_part(&mut self, tag: Tag, amounts: &Amounts) {
        if amounts.is_empty() {
            return;
        }
        match self.parts.iter_mut().find(|(existing, _)| *existing == tag) {
            Some((_, available)) => available.add(amounts),
            None => self.parts.push((tag, amounts.clone())),
        }
    }

    /// Adds up a list of `Resource` messages. Ranges other than `ports`, and sets, are rejected
    /// with a reason.
    pub(crate) fn parse(resources: &[Value]) -> Result<Self, String> {
        let mut groups: Vec<(Tag, Vec<Value>)> = Vec::new();
        for resource in resources {
            let tag = Tag::parse(resource);
            match groups.iter_mut().find(|(existing, _)| *existing == tag) {
                Some((_, group)) => group.push(resource.clone()),
                None => groups.push((tag, vec![resource.clone()])),
            }
        }
        let mut result = Self::default();
        for (tag, group) in groups {
            result.add_part(tag, &Amounts::parse(&group)?);
        }
        Ok(result)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether it is large enough for an offer: at least 0.01 CPUs or 32 MB, the thresholds of a
    /// real master.
    pub(crate) fn is_worth_offering(&self) -> bool {
        self.scalar("cpus") >= 0.01 || self.scalar("mem") >= 32.0
    }

    pub(crate) fn scalar(&self, name: &str) -> f64 {
        self.thousandths(name) as f64 / 1000.0
    }

    /// The sum of a scalar of all parts, without rounding.
    pub(crate) fn thousandths(&self, name: &str) -> i64 {
        self.parts
            .iter()
            .map(|(_, amounts)| amounts.thousandths(name))
            .sum()
    }

    pub(crate) fn port_count(&self) -> u64 {
        self.sum().port_count()
    }

    /// The sum of all parts, whatever their reservations.
    fn sum(&self) -> Amounts {
        self.parts
            .iter()
            .fold(Amounts::default(), |mut sum, (_, amounts)| {
                sum.add(amounts);
                sum
            })
    }

    /// Whether it contains all of `other`, with the same reservations, and `MOUNT` disks as a whole.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other.parts.iter().all(|(tag, requested)| {
            let part = self.parts.iter().find(|(existing, _)| existing == tag);
            part.is_some_and(|(_, available)| {
                available == requested || (!tag.is_mount() && available.contains(requested))
            })
        })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (tag, amounts) in &other.parts {
            self.add_part(tag.clone(), amounts);
        }
    }

    /// Subtracts `other`; amounts do not fall below zero.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (tag, amounts) in &other.parts {
            if let Some((_, available)) = self.parts.iter_mut().find(|(existing, _)| existing == tag) {
                available.subtract(amounts);
            }
        }
        self.parts.retain(|(_, amounts)| !amounts.is_empty());
    }

    fn filter(&self, keep: impl Fn(&Tag) -> bool) -> Self {
        let parts = self.parts.iter().filter(|(tag, _)| keep(tag)).cloned();
        Self {
            parts: parts.collect(),
        }
    }

    /// The resources that may be offered to a role: those that are unreserved, or reserved for it
    /// or for one of its ancestors.
    pub(crate) fn visible_to(&self, role: &str) -> Self {
        self.filter(|tag| {
            tag.role().is_none_or(|owner| {
                role == owner
                    || role
                        .strip_prefix(owner)
                        .is_some_and(|remaining| remaining.starts_with('/'))
            })
        })
    }

    /// The unreserved resources.
    pub(crate) fn unreserved(&self) -> Self {
        self.filter(|tag| tag.role().is_none())
    }

    /// The reserved resources, by role.
    pub(crate) fn reserved(&self) -> BTreeMap<String, Self> {
        let mut roles: BTreeMap<String, Self> = BTreeMap::new();
        for (tag, amounts) in &self.parts {
            if let Some(role) = tag.role() {
                roles
                    .entry(role.to_owned())
                    .or_default()
                    .add_part(tag.clone(), amounts);
            }
        }
        roles
    }

    /// The same resources without the last reservation of each part. A part without a reservation,
    /// or a volume, is an error.
    pub(crate) fn without_reservation(&self) -> Result<Self, String> {
        let mut remaining = Self::default();
        for (tag, amounts) in &self.parts {
            let mut tag = tag.clone();
            if tag
                .disk
                .as_ref()
                .is_some_and(|disk| disk.get("persistence").is_some())
            {
                return Err("A persistent volume cannot change its reservation".to_owned());
            }
            if tag.reservations.pop().is_none() {
                return Err("A resource has no reservation".to_owned());
            }
            remaining.add_part(tag, amounts);
        }
        Ok(remaining)
    }

    /// The same disk without the persistent volumes. A part that is not a volume is an error.
    pub(crate) fn without_volume(&self) -> Result<Self, String> {
        let mut remaining = Self::default();
        for (tag, amounts) in &self.parts {
            let mut tag = tag.clone();
            let disk = tag.disk.take().map(doc::object).unwrap_or_default();
            if !disk.contains_key("persistence") {
                return Err("A resource is not a persistent volume".to_owned());
            }
            // A disk other than the root disk keeps its source.
            tag.disk = disk.get("source").map(|source| json!({ "source": source }));
            if tag.reservations.is_empty() {
                return Err("Persistent volumes cannot be created from unreserved resources".to_owned());
            }
            remaining.add_part(tag, amounts);
        }
        Ok(remaining)
    }

    /// Its persistent volumes.
    pub(crate) fn volumes(&self) -> Vec<Volume> {
        let volume = |tag: &Tag| {
            let disk = tag.disk.as_ref()?;
            Some(Volume {
                role: tag.role()?.to_owned(),
                id: doc::text(disk, &["persistence", "id"])?.to_owned(),
                path: doc::text(disk, &["volume", "container_path"])
                    .unwrap_or_default()
                    .to_owned(),
                root: tag.source().map(|(_, root)| PathBuf::from(root)),
            })
        };
        self.parts.iter().filter_map(|(tag, _)| volume(tag)).collect()
    }

    /// In the form of `/state`: every amount as a float, ports as `"[a-b, c-d]"` if there are any.
    pub(crate) fn summary(&self) -> Value {
        self.sum().summary()
    }

    /// In the form of `/roles`: only amounts above zero, ports as their number.
    pub(crate) fn quantities(&self) -> Value {
        self.sum().quantities()
    }

    /// As a list of `Resource` messages, ports first as in offers; `allocated` is added if given.
    pub(crate) fn messages(&self, form: ReservationFormat, allocated: Option<&str>) -> Vec<Value> {
        let parts = self.parts.iter();
        parts
            .flat_map(|(tag, amounts)| {
                let list = amounts.to_messages().into_iter();
                list.map(|resource| tag.write(resource, form, allocated))
            })
            .collect()
    }

    /// In the form of the master's errors: `cpus(allocated: alpha):2.9; mem(allocated:
    /// alpha):3744`.
    pub(crate) fn describe(&self, allocated: &str) -> String {
        let parts = self.parts.iter();
        let parts: Vec<String> = parts
            .flat_map(|(tag, amounts)| {
                amounts.describe(&format!("(allocated: {allocated}){}", tag.describe()))
            })
            .collect();
        parts.join("; ")
    }
}

impl Tag {
    fn parse(resource: &Value) -> Self {
        let disk = resource.get("disk").filter(|disk| disk.is_object()).cloned();
        let reservations = doc::list(resource, &["reservations"]);
        if !reservations.is_empty() {
            return Self {
                reservations: reservations.to_vec(),
                disk,
            };
        }
        let role = doc::text(resource, &["role"]).filter(|role| *role != "*");
        let reservations = role.map(|role| {
            let dynamic = resource.get("reservation");
            let mut info = dynamic.cloned().map(doc::object).unwrap_or_default();
            let kind = if dynamic.is_some() { "DYNAMIC" } else { "STATIC" };
            info.insert("type".to_owned(), json!(kind));
            info.insert("role".to_owned(), json!(role));
            Value::Object(info)
        });
        Self {
            reservations: reservations.into_iter().collect(),
            disk,
        }
    }

    /// The role that it is reserved for.
    fn role(&self) -> Option<&str> {
        self.reservations.last().and_then(|last| last["role"].as_str())
    }

    /// The type and the root of a disk other than the root disk.
    fn source(&self) -> Option<(&str, &str)> {
        let source = self.disk.as_ref()?.get("source")?;
        let kind = doc::text(source, &["type"])?;
        let root = doc::text(source, &[kind.to_ascii_lowercase().as_str(), "root"])?;
        Some((kind, root))
    }

    fn is_mount(&self) -> bool {
        self.source().is_some_and(|(kind, _)| kind == "MOUNT")
    }

    /// Adds the fields for roles and volumes to a resource.
    fn write(&self, resource: Value, form: ReservationFormat, allocated: Option<&str>) -> Value {
        let mut resource = doc::object(resource);
        if form != ReservationFormat::Refined {
            resource.insert("role".to_owned(), json!(self.role().unwrap_or("*")));
        }
        if let Some(allocated) = allocated {
            resource.insert("allocation_info".to_owned(), json!({ "role": allocated }));
        }
        if let Some(last) = self
            .reservations
            .last()
            .filter(|_| form != ReservationFormat::Refined)
        {
            let mut reservation = Map::new();
            doc::copy(last, &mut reservation, &["principal", "labels"]);
            if last["type"] != "STATIC" {
                resource.insert("reservation".to_owned(), Value::Object(reservation));
            }
        }
        if !self.reservations.is_empty() && form != ReservationFormat::Legacy {
            resource.insert("reservations".to_owned(), json!(self.reservations));
        }
        doc::put(&mut resource, "disk", self.disk.clone());
        Value::Object(resource)
    }

    fn describe(&self) -> String {
        let reservations: Vec<String> = self
            .reservations
            .iter()
            .map(|one| {
                let part = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
                let principal = Some(part("principal")).filter(|principal| !principal.is_empty());
                let principal = principal
                    .map(|principal| format!(",{principal}"))
                    .unwrap_or_default();
                format!("({},{}{principal})", part("type"), part("role"))
            })
            .collect();
        let disk = self.disk.as_ref().map(|disk| {
            let part = |path: [&str; 2]| doc::text(disk, &path).unwrap_or_default();
            let source = self.source().map(|(kind, root)| format!("{kind}:{root}"));
            let volume = disk.get("persistence").map(|_| {
                let path = part(["volume", "container_path"]);
                format!("{}:{path}", part(["persistence", "id"]))
            });
            let parts: Vec<String> = source.into_iter().chain(volume).collect();
            format!("[{}]", parts.join(","))
        });
        let reservations = if reservations.is_empty() {
            String::new()
        } else {
            format!("(reservations: [{}])", reservations.join(","))
        };
        reservations + &disk.unwrap_or_default()
    }
}

/// A task's resources in the form of documents: refined reservations, and the role they are
/// allocated to.
pub(crate) fn allocated_to(resources: &mut Value, role: &str) {
    for resource in resources.as_array_mut().into_iter().flatten() {
        let tag = Tag::parse(resource);
        let mut plain_resource = doc::object(resource.take());
        for key in ["role", "reservation", "reservations", "disk", "allocation_info"] {
            plain_resource.remove(key);
        }
        *resource = tag.write(
            Value::Object(plain_resource),
            ReservationFormat::Refined,
            Some(role),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_added_without_rounding_errors() {
        let mut used = Resources::total(0.1, 0.0, 0.0, (1, 0));
        used.add(&Resources::total(0.2, 0.0, 0.0, (1, 0)));
        assert!(Resources::total(0.3, 0.0, 0.0, (1, 0)).contains(&used));
        assert_eq!(
            used.summary(),
            json!({"cpus": 0.3, "mem": 0.0, "disk": 0.0, "gpus": 0.0})
        );
    }

    #[test]
    fn resources_are_described_as_by_the_master() {
        let result = Resources::total(0.4, 128.0, 16.0, (31320, 31320));
        assert_eq!(
            result.describe("alpha"),
            "cpus(allocated: alpha):0.4; mem(allocated: alpha):128; ports(allocated: alpha):[31320-31320]; disk(allocated: alpha):16"
        );
    }

    fn volume() -> Value {
        json!({"name": "disk", "type": "SCALAR", "scalar": {"value": 100.0},
            "reservations": [{"type": "DYNAMIC", "role": "alpha", "principal": "p"}],
            "disk": {"persistence": {"id": "vol-1", "principal": "p"},
                     "volume": {"container_path": "data", "mode": "RW"}}})
    }

    #[test]
    fn volume_is_distinct_from_reserved_and_free_disk() {
        let volume = Resources::parse(&[volume()]).unwrap();
        let reserved = volume.without_volume().unwrap();
        let free = reserved.without_reservation().unwrap();
        assert_eq!(free, Resources::total(0.0, 0.0, 100.0, (1, 0)));
        assert!(volume.without_reservation().is_err());
        assert!(reserved.without_volume().is_err());
        let mut all = Resources::total(1.0, 32.0, 50.0, (1, 0));
        all.add(&volume);
        assert!(!all.contains(&Resources::total(0.0, 0.0, 51.0, (1, 0))));
        assert!(!all.contains(&reserved));
        all.subtract(&volume);
        assert_eq!(all, Resources::total(1.0, 32.0, 50.0, (1, 0)));
        assert_eq!(
            volume.describe("alpha"),
            "disk(allocated: alpha)(reservations: [(DYNAMIC,alpha,p)])[vol-1:data]:100"
        );
    }

    #[test]
    fn mount_disk_is_contained_as_a_whole_only() {
        let disk = |kind: &str, size| {
            let mut source = json!({ "type": kind });
            source[kind.to_ascii_lowercase()] = json!({"root": "/d"});
            Resources::disk(&source, size)
        };
        let cases = [
            ("PATH", 100.0, true),
            ("PATH", 60.0, true),
            ("PATH", 101.0, false),
            ("MOUNT", 100.0, true),
            ("MOUNT", 60.0, false),
        ];
        for (kind, size, contained) in cases {
            let whole = disk(kind, 100.0);
            assert_eq!(whole.contains(&disk(kind, size)), contained, "{kind} {size}");
        }
        assert!(!disk("PATH", 100.0).contains(&Resources::total(0.0, 0.0, 1.0, (1, 0))));
        assert_eq!(
            disk("MOUNT", 100.0).describe("alpha"),
            "disk(allocated: alpha)[MOUNT:/d]:100"
        );
        let mut volume = volume();
        volume["disk"]["source"] = json!({"type": "PATH", "path": {"root": "/d"}});
        let volume = Resources::parse(&[volume]).unwrap();
        assert_eq!(
            volume.describe("alpha"),
            "disk(allocated: alpha)(reservations: [(DYNAMIC,alpha,p)])[PATH:/d,vol-1:data]:100"
        );
        assert_eq!(volume.volumes()[0].root, Some(PathBuf::from("/d")));
    }

    #[test]
    fn disk_of_a_destroyed_volume_keeps_its_source() {
        let mut volume = volume();
        volume["disk"]["source"] = json!({"type": "MOUNT", "mount": {"root": "/m"}});
        let reserved = Resources::parse(&[volume]).unwrap().without_volume().unwrap();
        let free = reserved.without_reservation().unwrap();
        let disk = &free.messages(ReservationFormat::Refined, None)[0]["disk"];
        assert_eq!(
            *disk,
            json!({"source": {"type": "MOUNT", "mount": {"root": "/m"}}})
        );
    }

    #[test]
    fn reserved_resources_are_visible_to_their_role_and_its_subroles() {
        let volume = Resources::parse(&[volume()]).unwrap();
        for (role, sees) in [
            ("alpha", true),
            ("alpha/b", true),
            ("alphabet", false),
            ("*", false),
        ] {
            assert_eq!(!volume.visible_to(role).is_empty(), sees, "{role}");
        }
    }

    #[test]
    fn both_forms_of_a_reservation_are_the_same() {
        let mut legacy = volume();
        let fields = legacy.as_object_mut().unwrap();
        fields.remove("reservations");
        fields.insert("role".to_owned(), json!("alpha"));
        fields.insert("reservation".to_owned(), json!({"principal": "p"}));
        let result = Resources::parse(&[legacy.clone()]).unwrap();
        assert_eq!(result, Resources::parse(&[volume()]).unwrap());
        assert_eq!(result.messages(ReservationFormat::Legacy, None), [legacy]);
        assert_eq!(result.messages(ReservationFormat::Refined, None), [volume()]);
    }
}
