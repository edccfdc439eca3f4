//! Tables of routes. The router of a port, its access rules and its OpenAPI document come from one
//! [`Table`], so that they agree.
//!
//! A parameter in a path is one segment; if it has a list of possible values, it is one of them. A
//! parameter that spans segments ([`Parameter::span`]) ends what the router compares: the routes
//! that begin alike have one handler there, which reads the rest of the path itself.

mod document;
mod error;
mod parameter;
mod route;
mod schemas;

pub use self::document::{ErrorResponse, Info, text};
pub use self::error::ErrorDocument;
pub use self::parameter::{Parameter, Values};
pub use self::route::Route;
pub use self::schemas::Schemas;

use std::collections::BTreeSet;

use axum::Router;
use http::Method;

use crate::Requirement;

/// The routes of a port, and what their descriptions refer to.
#[derive(Debug)]
pub struct Table<S = ()> {
    /// The texts of the document that belong to no route.
    pub info: Info,
    /// The parameters, to which routes refer by their keys.
    pub parameters: &'static [Parameter],
    /// The routes. If several match a request, the first one counts.
    pub routes: Vec<Route<S>>,
}

/// The result of looking up a method and a path.
#[derive(Debug)]
pub enum Found<'a, S> {
    /// A route.
    Route(&'a Route<S>),
    /// The path has routes with these other methods.
    OtherMethods(Vec<&'a Method>),
    /// The path has no route.
    Nothing,
}

impl<S: Clone + Send + Sync + 'static> Table<S> {
    /// The router of all routes.
    pub fn router(&self) -> Router<S> {
        let mut served = BTreeSet::new();
        let routes = self.routes.iter().filter_map(|route| {
            let path = self.routed_path(route);
            let is_first = served.insert((path.clone(), route.method.as_str()));
            is_first.then_some((path, route))
        });
        routes.fold(Router::new(), |router, (path, route)| {
            router.route(&path, route.handler.clone())
        })
    }
}

impl<S> Table<S> {
    /// Looks a method and a path up. The path is still percent-encoded.
    pub fn find(&self, method: &Method, path: &str) -> Found<'_, S> {
        let mut methods = Vec::new();
        for route in self.routes.iter().filter(|route| self.matches(&route.path, path)) {
            if route.method == *method {
                return Found::Route(route);
            }
            methods.push(&route.method);
        }
        if methods.is_empty() {
            Found::Nothing
        } else {
            Found::OtherMethods(methods)
        }
    }

    /// The route of a method and a path.
    pub fn route(&self, method: &Method, path: &str) -> Option<&Route<S>> {
        match self.find(method, path) {
            Found::Route(route) => Some(route),
            Found::OtherMethods(_) | Found::Nothing => None,
        }
    }

    /// The requirement of a route, where a `HEAD` is answered as a `GET`.
    pub fn requirement(&self, method: &Method, path: &str) -> Option<Requirement> {
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        self.route(method, path).map(Route::requirement)
    }

    fn matches(&self, template: &str, path: &str) -> bool {
        let (mut template, mut path) = (template.split('/'), path.split('/'));
        loop {
            match (template.next(), path.next()) {
                (None, None) => return true,
                (Some(expected), Some(found)) => match named(expected) {
                    Some(name) if !self.accepts(name, found) => return false,
                    None if expected != found => return false,
                    _ => {}
                },
                _ => return false,
            }
        }
    }

    fn accepts(&self, name: &str, segment: &str) -> bool {
        match self.parameter(name).map(|parameter| &parameter.values) {
            Some(Values::OneOf(values)) => values.contains(&segment),
            _ => !segment.is_empty(),
        }
    }

    /// The path for the router: up to a parameter that spans segments.
    fn routed_path(&self, route: &Route<S>) -> String {
        let path = route.routed_by.unwrap_or(&route.path);
        let spans = |name| self.parameter(name).is_some_and(|parameter| parameter.spans);
        let span = parameters_in(path).find(|name| spans(name));
        let before = span.and_then(|name| path.split_once(&format!("{{{name}}}")));
        before.map_or_else(|| path.to_owned(), |(before, _)| format!("{before}{{*path}}"))
    }

    fn parameter(&self, key: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.key == key)
    }
}

/// The name of the parameter that a segment of a template is.
fn named(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

/// The names in braces.
fn parameters_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
}

#[cfg(test)]
mod tests;
