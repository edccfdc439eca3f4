//! `[kubernetes]`: instances in sections of their own, and the variables of part B (specification).

mod instances;
#[cfg(test)]
mod settings_page;
mod variables;

pub(super) use instances::{
    Inheritance, SECTION as INSTANCES, WithInstances, is_key, names as instance_names, problems,
};
pub use variables::ignored as ignored_variables;
pub(super) use variables::{Variables, names_of as variables_of};
