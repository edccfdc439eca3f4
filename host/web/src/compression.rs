//! Compression of responses.

use axum::Router;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

/// Bytes of a body below which compression costs more than it saves: it fits into one packet
/// anyway.
const MIN_BYTES: u16 = 1024;

/// Compresses responses with gzip for clients that accept it. Event streams, whose events must not
/// wait in a compressor, small bodies and bodies that are compressed already (those of a forwarded
/// request) pass unchanged.
pub(crate) fn compressed(router: Router) -> Router {
    let compressible = SizeAbove::new(MIN_BYTES).and(NotForContentType::SSE);
    router.layer(
        CompressionLayer::new()
            .gzip(true)
            // Responses are not cached: each one is compressed for a single client.
            .quality(CompressionLevel::Fastest)
            .compress_when(compressible),
    )
}
