//! Writes nodes of a Marathon's state in ZooKeeper from their published formats, independently of the
//! code that reads them.

/// A protobuf message that is built field by field.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Adds a text, or bytes.
    #[must_use]
    pub fn text(mut self, number: u64, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.varint(number << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a message.
    #[must_use]
    pub fn nested(self, number: u64, value: Message) -> Self {
        self.text(number, value.0)
    }

    /// Adds an integer, a flag, or the number of an enumeration.
    #[must_use]
    pub fn number(mut self, number: u64, value: u64) -> Self {
        self.varint(number << 3);
        self.varint(value);
        self
    }

    /// Adds a double.
    #[must_use]
    pub fn real(mut self, number: u64, value: f64) -> Self {
        self.varint(number << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// The encoded message.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The path of a node below that of Marathon. `category` is the folder, such as `apps`.
pub fn node(category: &str, name: &str) -> String {
    let mut hash = 0_i32;
    for unit in name.encode_utf16() {
        hash = hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    }
    format!("/state/{category}/{:x}/{name}", (hash % 16).abs())
}

/// The content of `/state/internal:storage:version`.
pub fn storage_version(version: [u64; 3], format: u64) -> Vec<u8> {
    let [major, minor, patch] = version;
    let version = Message::default()
        .number(1, major)
        .number(2, minor)
        .number(3, patch);
    let entry = Message::default()
        .text(1, "internal:storage:version")
        .text(2, "0664256e-6771-11e5-94e1-be5b2935a987")
        .nested(3, version.number(4, format))
        .number(4, 0);
    entry.bytes()
}

/// A reference to an app (field 6 of a group) or pod (7) at a version.
pub fn reference(name: &str, version: &str) -> Message {
    Message::default().text(1, name).text(2, version)
}

/// A label, parameter, or variable of an environment.
pub fn pair(key: &str, value: &str) -> Message {
    Message::default().text(1, key).text(2, value)
}

/// A scalar resource.
pub fn resource(name: &str, quantity: f64) -> Message {
    let scalar = Message::default().real(1, quantity);
    Message::default().text(1, name).number(2, 0).nested(3, scalar)
}
