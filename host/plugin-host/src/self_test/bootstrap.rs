//! Runs cases of world `bootstrap-handler`.

use std::sync::Arc;

use transom_plugin_cases::{
    Answer,
    bootstrap::{Case, Rejected, reduce},
};

use super::{CaseAgents, PreparedCase, Testable, ask};
use crate::{
    documents::bootstrap::{answer_of, arguments},
    runtime::engine::{
        Instance,
        worlds::bootstrap::{Bootstrap, Call},
    },
    worlds::bootstrap::{Context, Prepared, Rejection},
};

/// The arguments of the handler.
pub(crate) struct Question {
    context: Context,
    script: Vec<u8>,
    /// Whether `retry` of a rejection is compared.
    is_exact: bool,
}

impl Testable for Bootstrap {
    type Case = Case;
    type Question = Question;
    type Output = Result<Prepared, Rejection>;

    fn prepare_case(case: Case, _: Option<&Arc<CaseAgents>>) -> Result<PreparedCase<Self>, String> {
        let expected = Some(case.expected());
        let is_exact = matches!(case.rejected, Rejected::Exactly { .. });
        let (context, script) = arguments(case);
        Ok(PreparedCase {
            question: Question {
                context,
                script,
                is_exact,
            },
            expected,
        })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<()>,
        question: &Question,
    ) -> Result<Self::Output, String> {
        let (context, script) = (question.context.clone(), question.script.clone());
        ask(instance, shared, |reply| Call {
            context,
            script,
            reply,
        })
        .await
    }

    fn to_answer(question: &Question, found: Self::Output) -> Answer {
        answer_of(&found, question.is_exact)
    }

    fn project(found: Answer, expected: &Answer) -> Answer {
        reduce(found, expected)
    }
}
