//! The tasks of one framework.

use transom_cluster::{AgentId, TaskId};

use super::{Ordered, PersistentMap, Task};

/// Tasks by id, iterated in the order in which they were reported, and by agent. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tasks: Ordered<TaskId, Task>,
    by_agent: PersistentMap<AgentId, imbl::OrdSet<TaskId>>,
}

#[cfg(test)]
thread_local! {
    /// How many tasks this thread has gone through.
    pub(crate) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn visited<T>(entry: T) -> T {
    #[cfg(test)]
    VISITED.with(|count| count.set(count.get() + 1));
    entry
}

impl PartialEq for Tasks {
    fn eq(&self, other: &Self) -> bool {
        self.tasks == other.tasks
    }
}

impl Tasks {
    /// Sets a task and returns the previous one, whose position it takes.
    pub fn insert(&mut self, id: TaskId, task: Task) -> Option<Task> {
        let agent = task.agent.clone();
        let old = self.tasks.insert(id.clone(), task);
        let moved = old.as_ref().filter(|old| old.agent != agent);
        if let Some(moved) = moved {
            self.leave(&moved.agent, &id);
        }
        if old.is_none() || moved.is_some() {
            self.by_agent.entry(agent).or_default().insert(id);
        }
        old
    }

    /// Removes a task.
    pub fn remove(&mut self, id: &TaskId) -> Option<Task> {
        let task = self.tasks.remove(id)?;
        self.leave(&task.agent, id);
        Some(task)
    }

    fn leave(&mut self, agent: &AgentId, id: &TaskId) {
        if let Some(tasks) = self.by_agent.get_mut(agent) {
            tasks.remove(id);
            if tasks.is_empty() {
                self.by_agent.remove(agent);
            }
        }
    }

    /// A task.
    pub fn get(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id)
    }

    /// All tasks in order.
    pub fn iter(&self) -> impl Iterator<Item = (&TaskId, &Task)> {
        self.tasks.iter().map(visited)
    }

    /// The ids of an agent's tasks.
    pub fn of_agent(&self, agent: &AgentId) -> impl Iterator<Item = &TaskId> {
        self.by_agent.get(agent).into_iter().flatten().map(visited)
    }

    /// The number of tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}
