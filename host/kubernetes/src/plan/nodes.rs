//! The steps for nodes: nodes whose tasks have ended are deleted, nodes of agents are cordoned on
//! request, and the drains of agents that stay are cancelled.

use std::collections::HashSet;

use super::{Drain, Planner, Step, in_removal_order};
use crate::kind::Kind;

impl Planner<'_> {
    /// Deletes nodes whose tasks have ended.
    pub(super) fn remove_nodes(&mut self) {
        let Some(nodes) = &self.observed.nodes else { return };
        let members = Kind::ALL.into_iter().flat_map(|kind| self.members(kind));
        let known: HashSet<&str> = members.map(|member| &*member.task).collect();
        let is_known = |task: &str| known.contains(task);
        let orphans = nodes
            .iter()
            .filter(|node| !node.leaving && node.task.as_deref().is_some_and(|task| !is_known(task)));
        let steps: Vec<Step> = orphans.map(|node| Step::RemoveNode(node.name.clone())).collect();
        self.plan.steps.extend(steps);
    }

    /// Cordons the agents' nodes, if that is requested.
    pub(super) fn cordon(&mut self) {
        if !self.goal.cordoned {
            return;
        }
        let agents = self.members(Kind::Agent);
        let nodes = agents.iter().filter_map(|member| self.node_of(&member.task));
        let open = nodes.filter(|node| !node.cordoned && !node.leaving);
        let steps: Vec<Step> = open
            .map(|node| Step::Cordon {
                node: node.name.clone(),
                cordoned: true,
            })
            .collect();
        self.plan.steps.extend(steps);
    }

    /// Cancels the drains of agents that are no longer to be removed.
    pub(super) fn cancel_drains(&mut self) {
        let steps = self.plan.steps.iter();
        let removed: HashSet<u32> = steps
            .filter_map(|step| match step {
                Step::Remove {
                    kind: Kind::Agent,
                    number,
                    ..
                } => Some(*number),
                _ => None,
            })
            .collect();
        let agents = self.members(Kind::Agent);
        let staying = agents.iter().filter(|member| !member.leaving).count();
        let surplus = staying.saturating_sub(self.wanted(Kind::Agent));
        let doomed: HashSet<u32> = in_removal_order(agents)
            .into_iter()
            .take(surplus)
            .map(|member| member.number)
            .collect();
        let drained = agents.iter().filter(|member| {
            let stays = !member.old && !member.leaving && !doomed.contains(&member.number);
            let drained = matches!(member.drain, Drain::Failed | Drain::Done);
            stays && drained && !removed.contains(&member.number)
        });
        let cancelled: Vec<Step> = drained
            .filter_map(|member| {
                Some(Step::CancelDrain {
                    number: member.number,
                    node: self.node_of(&member.task)?.name.clone(),
                })
            })
            .collect();
        self.plan.steps.extend(cancelled);
    }
}
