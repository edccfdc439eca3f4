//! What operations have in common.

use http::Method;
use schemars::JsonSchema;
use serde_json::{Value, json};
use transom_web::routes::{Route, Schemas};

use super::parameters::CHANGE;
use crate::api::Api;
use crate::api::change::DeploymentResult;

/// The parts of descriptions that many routes have.
pub(super) trait Operation: Sized {
    /// The parameters of every change, and the statuses with which changes are rejected.
    fn change(self) -> Self;

    /// The same for a deletion, which has `force` unless the parameter says otherwise.
    fn deletion(self) -> Self;

    /// The JSON document that is the body of the request.
    fn document(self, schema: impl Fn(&mut Schemas) -> Value + Send + Sync + 'static) -> Self;

    /// A definition, or a part of one, whose unknown fields are reported.
    fn definition(self, schema: impl Fn(&mut Schemas) -> Value + Send + Sync + 'static) -> Self;

    /// The response of a change.
    fn deployed(self) -> Self;
}

impl Operation for Route<Api> {
    fn change(self) -> Self {
        self.parameters(&["force"])
            .parameters(CHANGE)
            .errors(&[400, 403, 409, 503])
    }

    fn deletion(self) -> Self {
        let route = self.parameters(&["forceUnlessFalse"]).parameters(CHANGE);
        route.errors(&[400, 403, 409, 503])
    }

    fn document(self, schema: impl Fn(&mut Schemas) -> Value + Send + Sync + 'static) -> Self {
        self.body(schema).errors(&[400, 422])
    }

    fn definition(self, schema: impl Fn(&mut Schemas) -> Value + Send + Sync + 'static) -> Self {
        let route = self.document(schema).parameters(&["strict"]);
        route.headers_of_successes(&["X-Transom-Unknown-Fields"])
    }

    fn deployed(self) -> Self {
        self.returns::<DeploymentResult<'_>>("The deployment that makes the change.")
            .headers(&["Marathon-Deployment-Id"])
    }
}

/// Routes that change something.
pub(super) use self::methods::{delete, patch, post, put};

mod methods {
    use axum::handler::Handler;

    use super::{Api, Method, Route};

    macro_rules! methods {
        ($($name:ident: $method:ident),*) => {$(
            pub(in crate::api::routes) fn $name<T: 'static>(
                path: &'static str,
                id: &'static str,
                summary: &'static str,
                handler: impl Handler<T, Api>,
            ) -> Route<Api> {
                Route::new(Method::$method, path, id, summary, handler)
            }
        )*};
    }

    methods!(delete: DELETE, patch: PATCH, post: POST, put: PUT);
}

/// A document with one of two schemas.
pub(super) fn either<A: JsonSchema, B: JsonSchema>(schemas: &mut Schemas) -> Value {
    json!({"anyOf": [schemas.of::<A>(), schemas.of::<B>()]})
}
