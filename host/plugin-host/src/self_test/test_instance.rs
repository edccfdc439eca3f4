//! An instance that runs cases, with its measurements.

use std::sync::Arc;

use super::Testable;
use crate::{
    runtime::{
        engine::{Engine, Instance},
        version_context::VersionContext,
    },
    worlds::about::ConfigError,
};

/// A configured instance.
pub(crate) struct TestInstance<W: Testable> {
    pub(crate) instance: Instance<W>,
    pub(crate) shared: Arc<W::Shared>,
    pub(crate) context: Arc<VersionContext>,
}

impl<W: Testable> TestInstance<W> {
    /// Creates and configures an instance. The error is the reason of a failure.
    pub(crate) async fn new(
        engine: &Engine,
        pre: &W::Pre,
        context: &Arc<VersionContext>,
    ) -> Result<TestInstance<W>, String> {
        let mut test_instance = TestInstance::unconfigured(engine, pre, context).await?;
        let configured = test_instance.instance.configure().await;
        configured.map_err(|error| error.to_string())?.map_err(|errors| {
            let errors = ConfigError::list(&errors);
            format!("it rejects the configuration that it accepted before: {errors}")
        })?;
        Ok(test_instance)
    }

    /// Creates an instance that is not configured yet.
    pub(crate) async fn unconfigured(
        engine: &Engine,
        pre: &W::Pre,
        context: &Arc<VersionContext>,
    ) -> Result<TestInstance<W>, String> {
        let instance = Instance::<W>::instantiate(engine, pre, context, 0).await;
        Ok(TestInstance {
            instance: instance.map_err(|error| error.to_string())?,
            shared: Arc::default(),
            context: Arc::clone(context),
        })
    }

    /// Returns the configuration schema in the component's description.
    pub(crate) async fn schema(&mut self) -> Result<Option<String>, String> {
        let described = self
            .instance
            .describe()
            .await
            .map_err(|error| error.to_string())?;
        Ok(described.config_schema)
    }

    /// Drops the guest resources of dropped cases. This calls the component.
    pub(crate) async fn drop_resources(&mut self) -> Result<(), String> {
        W::drop_orphans(&mut self.instance, &self.shared)
            .await
            .map_err(|fault| fault.to_error(&self.context.name).to_string())
    }
}
