//! Takes a response from hickory-server's handler as bytes for one of our listeners.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hickory_proto::op::Query;
use hickory_proto::rr::Record;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};
use hickory_server::net::NetError;
use hickory_server::server::{Request, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponse;

use super::wire::response_limit;

/// Encodes the response to one request, within the limit of its transport. Clones share the bytes.
#[derive(Clone, Debug)]
pub(super) struct ResponseBuffer {
    question: Option<Query>,
    limit: u16,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl ResponseBuffer {
    pub(super) fn of(request: &Request) -> Self {
        let question = match request.queries.queries() {
            [question] => Some(question.original().clone()),
            _ => None,
        };
        Self {
            question,
            limit: response_limit(request),
            bytes: Arc::default(),
        }
    }

    /// The encoded response; empty if none was sent.
    pub(super) fn take(&self) -> Vec<u8> {
        mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl ResponseHandler for ResponseBuffer {
    async fn send_response<'a>(
        &mut self,
        response: MessageResponse<
            '_,
            'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
        >,
    ) -> Result<ResponseInfo, NetError> {
        let mut bytes = Vec::with_capacity(512);
        let mut encoder = BinEncoder::new(&mut bytes);
        encoder.set_max_size(self.limit);
        // hickory-server copies the question as bytes, so that names in records have no pointers to
        // it. The encoder knows the name if it was written there before.
        if let Some(question) = &self.question {
            encoder.emit_vec(&[0; 12])?;
            question.emit(&mut encoder)?;
            encoder.set_offset(0);
        }
        let info = response.destructive_emit(&mut encoder)?;
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        Ok(info)
    }
}
