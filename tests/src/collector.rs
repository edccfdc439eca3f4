//! A stand-in for a collector of traces: decodes OTLP over HTTP and keeps all spans.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A received span, with its ids in hexadecimal.
#[derive(Clone, Debug, Default)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub attributes: BTreeMap<String, String>,
    /// The names of its events with their attributes.
    pub events: Vec<(String, BTreeMap<String, String>)>,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
    /// Status code; 2 is an error.
    pub status: i32,
}

/// The spans received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub spans: Vec<Span>,
    /// The headers of the requests.
    pub headers: Vec<HeaderMap>,
}

impl Received {
    /// The received spans with this name.
    pub fn named(&self, name: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }

    /// The span's parent, if it was received.
    pub fn parent(&self, span: &Span) -> Option<&Span> {
        self.spans
            .iter()
            .find(|other| other.trace == span.trace && other.id == span.parent)
    }

    /// The names of a span and of all its ancestors.
    pub fn path(&self, span: &Span) -> Vec<String> {
        let mut path = vec![span.name.clone()];
        let mut above = self.parent(span);
        while let Some(found) = above {
            path.push(found.name.clone());
            above = self.parent(found);
        }
        path
    }
}

/// A running collector; ends when dropped.
pub struct Collector {
    pub address: SocketAddr,
    received: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
}

impl Collector {
    /// Starts one on a free port.
    pub async fn start() -> Collector {
        let received = Arc::new(Mutex::new(Received::default()));
        let router = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(Arc::clone(&received));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("served");
        });
        Collector {
            address,
            received,
            task,
        }
    }

    /// The spans received so far.
    pub fn received(&self) -> Received {
        self.received.lock().expect("a lock").clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(
    State(received): State<Arc<Mutex<Received>>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Vec<u8>) {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return (StatusCode::BAD_REQUEST, Vec::new());
    };
    let mut received = received.lock().expect("a lock");
    received.headers.push(headers);
    for resource_spans in request.resource_spans {
        let resource = resource_spans.resource.unwrap_or_default().attributes;
        let resource = attributes(&resource);
        for span in resource_spans
            .scope_spans
            .into_iter()
            .flat_map(|scope| scope.spans)
        {
            let events = span.events.iter();
            let events = events.map(|event| (event.name.clone(), attributes(&event.attributes)));
            received.spans.push(Span {
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                attributes: attributes(&span.attributes),
                events: events.collect(),
                resource: resource.clone(),
                status: span.status.unwrap_or_default().code,
            });
        }
    }
    // An empty answer: everything was accepted.
    (StatusCode::OK, Vec::new())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn attributes(found: &[KeyValue]) -> BTreeMap<String, String> {
    let pairs = found.iter();
    pairs
        .map(|pair| (pair.key.clone(), text(pair.value.as_ref())))
        .collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(value)) => value.to_string(),
        other => format!("{other:?}"),
    }
}
