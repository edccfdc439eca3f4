//! Which instances to kill when an app or pod with constraints is scaled down: the matcher selects
//! them, so that constraints hold for those that remain.

use std::sync::Arc;

use transom_cluster::TaskId;
use transom_replicas::{Condition, Directive};
use transom_scheduler::KillChoice;

use super::Core;
use super::selected_kills::SelectedKills;
use super::spec_state::SpecState;
use crate::ids::{InstanceId, SpecId};
use crate::instance::Instance;

impl SpecState {
    /// Takes the instances that are removed in this turn out of the matcher's selection.
    pub(super) fn take_selected(&mut self, removed: &[InstanceId]) {
        let Some(mut choice) = self.kill_choice.take() else {
            return;
        };
        for instance in removed.iter().filter_map(|id| self.instances().get(id)) {
            choice.take(&instance.task());
        }
        self.kill_choice = Some(choice);
    }
}

impl Core {
    /// Calls the matcher if it has to select among the kills, and holds these back until it has
    /// answered. Instances that do not run on a reachable agent are removed immediately.
    pub(super) fn with_selected_kills(
        &mut self,
        id: &SpecId,
        mut directive: Directive<InstanceId>,
    ) -> Directive<InstanceId> {
        let Some(state) = self.specs.get_mut(id) else {
            return directive;
        };
        if directive.kill_order.is_empty() || state.record.spec.constraints().is_empty() {
            state.kill_choice = None;
            return directive;
        }
        let is_placed =
            |instance: &InstanceId| state.instances().get(instance).is_some_and(|it| is_placed(it));
        let count = directive.decommission.iter().filter(|it| is_placed(it)).count();
        let candidates: Vec<TaskId> = directive
            .kill_order
            .iter()
            .filter(|it| is_placed(it))
            .filter_map(|it| Some(state.instances().get(it)?.task()))
            .collect();
        if count == 0 || count == candidates.len() {
            return directive;
        }
        let current_call = state.kill_choice.as_ref();
        let current_call = current_call.filter(|choice| choice.is_for(&candidates, count));
        if current_call.is_some_and(SelectedKills::is_answered) {
            return directive;
        }
        directive.decommission.retain(|it| !is_placed(it));
        directive.done = false;
        if current_call.is_none() {
            state.kill_choice = Some(SelectedKills::requested(&candidates, count));
            self.scheduler.select_kills(KillChoice {
                spec: Arc::clone(&state.run_spec),
                candidates,
                count: count as u32,
            });
        }
        directive
    }

    /// Stores the matcher's selection, unless the candidates or their number have changed since the
    /// call.
    pub(super) fn handle_selected_kills(&mut self, choice: &KillChoice, kills: Vec<TaskId>) {
        let Ok(id) = SpecId::parse(&choice.spec.id) else {
            return;
        };
        let call = self
            .specs
            .get_mut(&id)
            .and_then(|state| state.kill_choice.as_mut());
        let Some(call) = call else { return };
        if call.is_for(&choice.candidates, choice.count as usize) {
            call.answered(kills);
            self.reconcile_queue.insert(id);
        }
    }
}

/// Whether the instance has a launched task on a reachable agent.
fn is_placed(instance: &Instance) -> bool {
    let condition = instance.condition();
    condition != Condition::Scheduled && !condition.is_unreachable()
}
