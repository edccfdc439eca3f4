use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;

use super::snapshot::entry;
use super::*;
use crate::{Batch, Entry, Expect, Lease, Store};

fn entries() -> Vec<Entry> {
    let small = |number| entry(format!("fw/tasks/{number:05}"), format!("{{\"a\": {number}}}"));
    let mut entries: Vec<Entry> = (0..2500).map(small).collect();
    entries.push(entry("fx/null".to_owned(), "null"));
    entries.push(entry("fx/padded".to_owned(), " 1 "));
    entries.push(entry("fx/pretty".to_owned(), "{\n\"b\":\r1}"));
    entries.push(entry("fx/text\n\"é".to_owned(), "framework-0001"));
    entries.push(entry("fx/void".to_owned(), ""));
    entries.extend((0..3).map(|number| entry(format!("fz/{number}"), vec![number; 700 << 10])));
    entries
}

async fn opened() -> (TempDir, Arc<dyn Store>) {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::open(&format!("file:{}", dir.path().display()))
        .await
        .unwrap();
    (dir, store)
}

async fn hold(store: &Arc<dyn Store>) -> Holds {
    Holds::acquire(Arc::clone(store), ["fw/leader".to_owned()])
        .await
        .unwrap()
}

/// A store that fails after a number of commits, before or after it applies the next one.
#[derive(Debug)]
struct Failing {
    inner: Arc<dyn Store>,
    left: AtomicUsize,
    applies: bool,
}

#[async_trait]
impl Store for Failing {
    async fn get(&self, key: &str) -> crate::Result<Option<Entry>> {
        self.inner.get(key).await
    }
    async fn scan(&self, prefix: &str) -> crate::Result<Vec<Entry>> {
        self.inner.scan(prefix).await
    }
    async fn commit(&self, batch: Batch) -> crate::Result<Vec<u64>> {
        let count = |left: usize| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count);
        if left.is_err() && !self.applies {
            return Err(crate::Error::Closed);
        }
        let versions = self.inner.commit(batch).await?;
        left.map(|_| versions).map_err(|_| crate::Error::Closed)
    }
    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> crate::Result<Lease> {
        self.inner.acquire(name, holder, ttl).await
    }
    async fn renew(&self, lease: &Lease) -> crate::Result<Lease> {
        self.inner.renew(lease).await
    }
    async fn release(&self, lease: &Lease) -> crate::Result<()> {
        self.inner.release(lease).await
    }
}

#[tokio::test]
async fn copy_continues_after_an_interruption_at_any_batch() {
    let snapshot = Snapshot::new(entries());
    let mut interrupted = 0;
    for (stop, applies) in (0..).flat_map(|stop| [(stop, false), (stop, true)]) {
        let (_dir, store) = opened().await;
        let failing: Arc<dyn Store> = Arc::new(Failing {
            inner: Arc::clone(&store),
            left: AtomicUsize::new(stop),
            applies,
        });
        let to = hold(&failing).await;
        let first = write(&snapshot, "file:a", &to, |_| {}).await;
        to.release().await;
        let is_untouched = stop == 0 && !applies;
        assert_eq!(check_finished(&*store).await.is_ok(), is_untouched, "{stop}");
        let to = hold(&store).await;
        let mut reported = Vec::new();
        write(&snapshot, "file:a", &to, |written| reported.push(written))
            .await
            .unwrap();
        let stored = if applies { stop + 1 } else { stop };
        assert!(reported[0] > 0 || stored == 0, "{stored}: {reported:?}");
        assert!(check_finished(&*store).await.is_err());
        finish(snapshot.contents(), &to).await.unwrap();
        to.release().await;
        check_finished(&*store).await.unwrap();
        let copied = store.scan("").await.unwrap();
        assert_eq!(Snapshot::new(copied).contents(), snapshot.contents());
        if first.is_ok() {
            break;
        }
        interrupted += 1;
    }
    assert!(interrupted == 10, "{interrupted}");
}

#[tokio::test]
async fn destination_has_to_be_empty_or_to_have_the_same_copy() {
    let (snapshot, other) = (
        Snapshot::new(entries()),
        Snapshot::new(vec![entry("fw/x".to_owned(), "1")]),
    );
    let (_dir, store) = opened().await;
    let to = hold(&store).await;
    let write_to = async |snapshot: &Snapshot| write(snapshot, "a", &to, |_| {}).await;
    assert!(matches!(
        write_to(&Snapshot::new(Vec::new())).await,
        Err(Error::Empty)
    ));
    write_to(&snapshot).await.unwrap();
    let rejected = write_to(&other).await;
    assert!(
        matches!(rejected, Err(Error::Another { copied: 2508, .. })),
        "{rejected:?}"
    );
    let differs = finish(other.contents(), &to).await;
    assert!(
        matches!(differs, Err(Error::Differs { expected: 1, .. })),
        "{differs:?}"
    );
    assert!(check_finished(&*store).await.is_err());

    clear(&to).await.unwrap();
    assert!(store.scan("").await.unwrap().is_empty());
    write_to(&other).await.unwrap();
    store.put("fw/y", "1".into(), Expect::Any).await.unwrap();
    assert!(matches!(
        finish(other.contents(), &to).await,
        Err(Error::Differs { .. })
    ));
    store.delete("fw/y", Expect::Any).await.unwrap();
    finish(other.contents(), &to).await.unwrap();
    clear(&to).await.unwrap();
    assert_eq!(
        store.scan("").await.unwrap().len(),
        1,
        "a finished copy is not discarded"
    );
    let rejected = write_to(&other).await;
    assert!(
        matches!(rejected, Err(Error::NotEmpty { count: 1, .. })),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn leases_exclude_leaders_and_other_copies() {
    let (_dir, store) = opened().await;
    let (of_frameworks, ttl) = (
        ["f/leader".to_owned(), "g/leader".to_owned()],
        Duration::from_mins(1),
    );
    let acquire = async || Holds::acquire(Arc::clone(&store), of_frameworks.clone()).await;
    let leader = store.acquire("g/leader", "id host:1", ttl).await.unwrap();
    let rejected = acquire().await;
    assert!(
        matches!(&rejected, Err(Error::Led { lease, holder }) if lease == "g/leader" && holder == "host:1"),
        "{rejected:?}"
    );
    for name in [KEY, "f/leader"] {
        assert_eq!(store.lease(name).await.unwrap(), None, "{name}");
    }
    store.release(&leader).await.unwrap();
    let held = acquire().await.unwrap();
    assert!(matches!(acquire().await, Err(Error::Busy { .. })));
    held.store().put("f/x", "1".into(), Expect::Any).await.unwrap();
    let lease = store.lease(KEY).await.unwrap().unwrap();
    store.release(&lease).await.unwrap();
    let fenced = held.store().put("f/x", "2".into(), Expect::Any).await;
    assert!(matches!(fenced, Err(crate::Error::Fenced { .. })), "{fenced:?}");
    held.release().await;
    assert!(store.acquire("f/leader", "id host:1", ttl).await.is_ok());
}

fn dumped(compress: bool) -> Vec<u8> {
    let header = Header::new("2026-01-01T00:00:00Z".to_owned(), "file:a".to_owned());
    let mut out = Vec::new();
    dump(&Snapshot::new(entries()), &header, compress, &mut out).unwrap();
    out
}

#[test]
fn dump_has_every_byte_as_text_and_compressed() {
    for compress in [false, true] {
        let (header, snapshot) = read_dump(&*dumped(compress)).unwrap();
        assert_eq!(snapshot, Snapshot::new(entries()));
        assert_eq!(
            (header.server.as_str(), header.transom.as_str()),
            ("file:a", env!("CARGO_PKG_VERSION"))
        );
    }
    let text = dumped(false);
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines[1], br#"{"key":"fw/tasks/00000","value":{"a": 0}}"#);
    assert!(lines[2501].ends_with(br#""base64":"bnVsbA=="}"#));
}

#[test]
fn damaged_dumps_are_rejected_with_the_line() {
    let small = |keys: &[&str]| {
        let entries = keys
            .iter()
            .map(|key| entry((*key).to_owned(), "{\"n\":1}"))
            .collect();
        let mut out = Vec::new();
        dump(
            &Snapshot::new(entries),
            &Header::new(String::new(), String::new()),
            false,
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    };
    let whole = small(&["a", "b"]);
    let compressed = dumped(true);
    let lines = |text: &str, range: std::ops::Range<usize>| {
        text.lines()
            .skip(range.start)
            .take(range.len())
            .fold(String::new(), |all, line| all + line + "\n")
    };
    let with = |from: &str, to: &str| whole.replacen(from, to, 1);
    let long = with("\"a\"", &format!("\"{}\"", "a".repeat(5000)));
    let endless = lines(&whole, 0..1) + &"x".repeat(30 << 20);
    for (text, expected) in [
        (
            String::new(),
            "line 1: this is not a file of `transom store dump`",
        ),
        (whole[..20].to_owned(), "line 1: it has no end"),
        (lines(&whole, 0..1), "line 2: the last line of a dump is missing"),
        (lines(&whole, 0..3), "line 4: the last line of a dump is missing"),
        (whole[..whole.len() - 1].to_owned(), "line 4: it has no end"),
        (whole[..whole.len() - 30].to_owned(), "line 4: it has no end"),
        (with("{\"n\":1}", "{\"n\":2}"), "line 4: the SHA-256"),
        (with("{\"n\":1}", "{\"n\":}"), "line 2: expected value"),
        (
            with("\"entries\":2", "\"entries\":3"),
            "line 4: the file has 2 entries, and was written with 3",
        ),
        (
            with("\"value\":{\"n\":1}", "\"base64\":\"*\""),
            "line 2: its base64 is invalid",
        ),
        (
            with("\"value\":{\"n\":1}", "\"other\":1"),
            "line 2: unknown field `other`",
        ),
        (with(",\"value\":{\"n\":1}", ""), "line 2: it needs either"),
        (
            with("transom_dump\":1", "transom_dump\":2"),
            "the dump has format 2",
        ),
        (whole.clone() + "\n", "line 5: there is a line after"),
        (small(&["a", "a"]), "line 3: the key `a` is there twice"),
        (small(&["b", "a"]), "line 3: the key `a` is out of order"),
        (long, "line 2: the key `aaaa"),
        (endless, "line 2: it is longer than"),
    ] {
        let error = read_dump(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
    for size in [1, 10, compressed.len() / 2, compressed.len() - 1] {
        assert!(read_dump(&compressed[..size]).is_err(), "{size}");
    }
    let mut changed = compressed;
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    assert!(read_dump(&*changed).is_err());
}
