//! One attempt of a run: model, tools, model … until there is an answer.
//!
//! An attempt starts from the conversation again, which needs nothing to be kept of one that was lost. Only where an
//! earlier attempt had effects it goes on from there (R4.5). A turn that asks a person parks with what it has said so far,
//! and its next attempt finds that in the conversation, and the answer beside it (R3.15).

use std::collections::HashSet;

use futures::{StreamExt, stream};
use serde_json::json;
use tidegate_client::worker::{Failure, Job, Outcome, WaitFor};
use tidegate_llm::{
    CallClass, CallContext, ChatRequest, Delta, Finish, FinishReason, Message, Model, ToolCall,
};
use tidegate_model::{
    Code,
    api::{Ask, ContextAnswer, MessageView, NewMessage, SideEffectLevel},
    event::EventKind,
};
use tokio::time::Instant;

use crate::{
    ask::{self, ASK_USER},
    conversation::{opening, stored_assistant, stored_tool},
    cutoff::{CutOff, tokens_spent},
    executor::{Agent, no_context},
    failure, journal, limits,
    meter::CallMeter,
    resume::{PlannedCall, Resumed, own_ids},
    tools::{Offer, ToolAnswer, bounded},
};

/// An attempt under way.
pub(crate) struct Turn<'a> {
    agent: &'a Agent,
    job: &'a Job,
    cutoff: CutOff,
    call: CallContext,
    /// What the model is shown.
    messages: Vec<Message>,
    /// What the conversation gets when the turn completes.
    added: Vec<NewMessage>,
    /// Bytes of answers of tools so far.
    tool_bytes: usize,
    /// Answers of models so far, those of earlier attempts that it goes on from included.
    steps: u32,
    /// Ids of calls so far.
    call_ids: HashSet<String>,
    /// Calls that stand in the journal from earlier attempts.
    journaled: HashSet<String>,
}

/// How far the steps came.
enum Reached {
    /// The model's answer, as the run gives it back.
    Answer(serde_json::Value),
    /// A question to the person.
    Question(Ask),
}

/// One answer of a model.
struct Answer {
    text: String,
    calls: Vec<ToolCall>,
    finish: Finish,
    /// The bound of output tokens was the budget's.
    bounded_by_budget: bool,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(agent: &'a Agent, job: &'a Job, cutoff: CutOff) -> Self {
        let run = job.run();
        let class = if run.is_background_work() {
            CallClass::Background
        } else {
            CallClass::Foreground
        };
        let call = CallContext {
            tenant: Some(run.tenant.clone()),
            run: Some(run.run_id),
            deadline: cutoff.at(),
            ..CallContext::new(class)
        };
        Self {
            agent,
            job,
            cutoff,
            call,
            messages: Vec::new(),
            added: Vec::new(),
            tool_bytes: 0,
            steps: 0,
            call_ids: HashSet::new(),
            journaled: HashSet::new(),
        }
    }

    pub(crate) async fn run(mut self) -> Outcome {
        match self.steps().await {
            Ok(Reached::Answer(result)) => Outcome::Completed {
                result,
                messages: self.added,
            },
            Ok(Reached::Question(ask)) => Outcome::Waiting {
                wait: WaitFor {
                    input: Some(ask),
                    ..WaitFor::default()
                },
                messages: self.added,
            },
            Err(failure) => Outcome::Failed(failure),
        }
    }

    async fn steps(&mut self) -> Result<Reached, Failure> {
        let model = self.model()?;
        let mut left = self.left_by_others().await?;
        self.take_answer(&mut left).await;
        let system = &self.agent.settings.system_prompt;
        self.messages = opening(system, &left.messages, self.job)
            .map_err(|refused| Failure::new(Code::InvalidArgument, refused.to_string()))?;
        let offer = self.offer().await;
        if let Some(ask) = self.resume(left, &offer).await? {
            return Ok(Reached::Question(ask));
        }
        while self.steps < self.agent.settings.max_steps {
            self.steps += 1;
            let mut answer = self.ask(&model, &offer).await?;
            own_ids(&mut answer.calls, &mut self.call_ids, self.steps);
            let text = bounded(&answer.text, limits::ANSWER_MAX_BYTES);
            self.add(stored_assistant(&text, &answer.calls, &offer))
                .await;
            if answer.calls.is_empty() {
                return final_answer(&text, &answer, self.steps).map(Reached::Answer);
            }
            self.messages.push(Message::Assistant {
                text: answer.text,
                tool_calls: answer.calls.clone(),
            });
            let planned = answer.calls.into_iter().map(|call| PlannedCall {
                tool: offer.canonical(&call.name),
                call,
            });
            if let Some(ask) = self.carry_out(&offer, planned.collect()).await? {
                return Ok(Reached::Question(ask));
            }
        }
        let steps = self.agent.settings.max_steps;
        let text = format!("no answer after {steps} model calls; see the setting agentMaxSteps");
        Err(Failure::new(Code::AgentStepsExhausted, text))
    }

    /// The conversation of a turn, and what earlier attempts left; the first attempt of a run that is no turn has
    /// neither.
    async fn left_by_others(&self) -> Result<ContextAnswer, Failure> {
        let first = self.job.lease().fence.number == 1;
        if self.job.run().conversation_id.is_none() && first {
            return Ok(ContextAnswer::default());
        }
        let context = self.job.context(limits::CONTEXT_MESSAGES).await;
        context.map_err(|error| no_context(&error))
    }

    /// What this attempt may call; work in the background only reads (R20.2).
    async fn offer(&self) -> Offer {
        let run = self.job.run();
        let most = if run.is_background_work() {
            SideEffectLevel::Read
        } else {
            SideEffectLevel::Write
        };
        let offer = self.agent.tools.offer(&run.tenant, most).await;
        if !offer.is_empty() {
            let body = json!({ "note": "tools.offered", "tools": offer.map() });
            self.job.events().send(EventKind::WorkerNote, body).await;
        }
        if let Some(body) = offer.missing() {
            self.job.events().send(EventKind::WorkerNote, body).await;
        }
        offer
    }

    /// Goes on from where an earlier attempt had effects: what it said and did stands, its open calls are made now.
    async fn resume(&mut self, left: ContextAnswer, offer: &Offer) -> Result<Option<Ask>, Failure> {
        if left.effects.is_empty() {
            return Ok(None);
        }
        let effects = left.effects.into_iter();
        self.journaled = effects.map(|effect| effect.call_id.to_string()).collect();
        let resumed = Resumed::of(left.earlier);
        self.call_ids = resumed.call_ids();
        self.call_ids.extend(self.journaled.iter().cloned());
        self.steps = resumed.steps;
        self.tool_bytes = resumed.tool_bytes;
        self.messages.extend(resumed.messages);
        self.added.extend(resumed.kept);
        let body = json!({ "note": "turn.resumed", "step": self.steps, "openCalls": resumed.pending.len() });
        self.job.events().send(EventKind::WorkerNote, body).await;
        self.carry_out(offer, resumed.pending).await
    }

    /// Makes the calls of one answer; a question among them comes last and is handed on.
    async fn carry_out(
        &mut self,
        offer: &Offer,
        mut calls: Vec<PlannedCall>,
    ) -> Result<Option<Ask>, Failure> {
        let question = self.take_question(&mut calls).await;
        self.use_tools(offer, calls).await?;
        Ok(question)
    }

    /// Puts what a person answered where its question stands.
    async fn take_answer(&mut self, left: &mut ContextAnswer) {
        let Some((call_id, text)) = ask::answer(left) else {
            return;
        };
        let said = stored_tool(&call_id, &bounded(&text, limits::ANSWER_MAX_BYTES), false);
        left.messages.push(MessageView {
            seq: 0,
            role: said.role,
            content: said.content.clone(),
            run_id: None,
            created_at: self.job.run().created_at,
        });
        self.add(said).await;
    }

    /// Whether the model may ask the person.
    fn may_ask(&self) -> bool {
        self.agent.settings.ask_user && self.job.run().conversation_id.is_some()
    }

    /// Takes the question out of an answer's calls; the person is asked one at a time.
    async fn take_question(&mut self, calls: &mut Vec<PlannedCall>) -> Option<Ask> {
        if !self.may_ask() {
            return None;
        }
        let (asks, rest): (Vec<_>, Vec<_>) = std::mem::take(calls)
            .into_iter()
            .partition(|planned| planned.call.name == ASK_USER);
        *calls = rest;
        let mut taken = None;
        for PlannedCall { call, .. } in asks {
            let refused = match ask::question(&call) {
                Ok(ask) if taken.is_none() => {
                    taken = Some(ask);
                    continue;
                }
                Ok(_) => {
                    "one question at a time; ask this one when the other is answered".to_owned()
                }
                Err(wrong) => wrong,
            };
            self.add(stored_tool(&call.id, &refused, true)).await;
            self.messages.push(ask::message(&call.id, &refused));
        }
        taken
    }

    fn model(&self) -> Result<Model, Failure> {
        let alias = self.agent.settings.model.get().ok_or_else(|| {
            let text =
                "no model is marked as default; set one with `tidegate model set NAME --default`";
            Failure::new(Code::ModelNotConfigured, text)
        })?;
        let model = self.agent.providers.model(&alias);
        model.map_err(|error| failure::of_model(&error, &self.agent.settings))
    }

    /// Asks the model once and streams what it says.
    async fn ask(&self, model: &Model, offer: &Offer) -> Result<Answer, Failure> {
        let mut request = ChatRequest::new(self.messages.clone());
        request.tools = offer.specs();
        if self.may_ask() {
            request.tools.push(ask::spec());
        }
        let mut meter = CallMeter::new(self.job.usage(), &request);
        let left = self.tokens_left()?;
        if let Some(left) = left {
            let output = left.saturating_sub(meter.input()).max(1);
            request.max_output_tokens = Some(u32::try_from(output).unwrap_or(u32::MAX));
        }
        let of_model = |error| {
            metrics::counter!("tidegate_agent_steps_total", "outcome" => "failed").increment(1);
            failure::of_model(&error, &self.agent.settings)
        };
        let mut deltas = model.chat(request, &self.call).await.map_err(of_model)?;
        meter.began();
        let (mut text, mut calls) = (String::new(), Vec::new());
        while let Some(delta) = deltas.next().await {
            match delta.map_err(of_model)? {
                Delta::Text(more) => {
                    let more = more.replace('\0', "");
                    let output = meter.text(more.len());
                    text.push_str(&more);
                    self.job.events().delta(more).await;
                    if left.is_some_and(|left| output > left) {
                        return Err(tokens_spent());
                    }
                }
                Delta::Progress => {}
                Delta::ToolCall(call) => calls.push(call),
                Delta::Finished(finish) => {
                    meter.settle(finish.usage);
                    self.called(model, &finish).await;
                    return Ok(Answer {
                        text,
                        calls,
                        finish,
                        bounded_by_budget: left.is_some(),
                    });
                }
            }
        }
        // The stack promises an end or an error; a stream with neither is treated as what it looks like.
        let text = "the model's answer broke off";
        Err(Failure::new(Code::ProviderFailed, text))
    }

    /// Tokens that the next call may use; an error where none are left.
    fn tokens_left(&self) -> Result<Option<u64>, Failure> {
        let Some(budget) = self.cutoff.tokens else {
            return Ok(None);
        };
        let used = u64::try_from(self.job.usage().tokens()).unwrap_or(0);
        match budget.saturating_sub(used) {
            0 => Err(tokens_spent()),
            left => Ok(Some(left)),
        }
    }

    async fn called(&self, model: &Model, finish: &Finish) {
        metrics::counter!("tidegate_agent_steps_total", "outcome" => "answered").increment(1);
        let tokens = finish.usage.tokens();
        let body = json!({
            "model": model.alias(),
            "usage": {
                "inputTokens": tokens.map(|tokens| tokens.input),
                "outputTokens": tokens.map(|tokens| tokens.output),
                "certainty": finish.usage.as_str(),
            },
        });
        self.job.events().send(EventKind::ModelCalled, body).await;
    }

    /// Calls the tools of one answer and keeps their order: some at once where all only read, else one after the other,
    /// so that none begins after one whose outcome is not known.
    async fn use_tools(&mut self, offer: &Offer, calls: Vec<PlannedCall>) -> Result<(), Failure> {
        if calls.iter().any(|planned| self.is_effect(offer, planned)) {
            for planned in calls {
                let answer = self.use_tool(offer, &planned).await?;
                self.answered(planned.call.id, &answer).await;
            }
            return Ok(());
        }
        let this = &*self;
        let answers: Vec<(String, Result<ToolAnswer, Failure>)> = stream::iter(calls)
            .map(|planned| async move {
                let answer = this.use_tool(offer, &planned).await;
                (planned.call.id, answer)
            })
            .buffered(limits::TOOL_CALLS_AT_ONCE)
            .collect()
            .await;
        for (call_id, answer) in answers {
            self.answered(call_id, &answer?).await;
        }
        Ok(())
    }

    /// Takes what a tool answered into the conversation.
    async fn answered(&mut self, call_id: String, answer: &ToolAnswer) {
        let left = limits::TOOL_TEXT_TOTAL_BYTES.saturating_sub(self.tool_bytes);
        let text = bounded(&answer.text, left);
        self.tool_bytes += text.len();
        self.add(stored_tool(&call_id, &text, answer.is_error))
            .await;
        self.messages.push(Message::Tool { call_id, text });
    }

    /// Whether a call stands in the journal: it may change something, or an earlier attempt took it for one that does.
    fn is_effect(&self, offer: &Offer, planned: &PlannedCall) -> bool {
        let level = offer.level(&planned.call.name);
        level.is_some_and(|level| level != SideEffectLevel::Read)
            || self.journaled.contains(&planned.call.id)
    }

    async fn use_tool(&self, offer: &Offer, planned: &PlannedCall) -> Result<ToolAnswer, Failure> {
        let (call, tool) = (&planned.call, &planned.tool);
        let body = json!({ "callId": call.id, "tool": tool });
        self.job.events().send(EventKind::ToolCalled, body).await;
        let started = Instant::now();
        let tools = &self.agent.tools;
        let answer = if self.is_effect(offer, planned) {
            let level = offer.level(&call.name);
            journal::call(self.job, tools, offer, planned, level).await
        } else {
            Ok(tools.call(offer, &call.name, &call.arguments).await)
        };
        let shown = if offer.knows(&call.name) {
            tool
        } else {
            "unknown"
        };
        let (code, is_error) = match &answer {
            Ok(answer) => (answer.code, answer.is_error),
            Err(failure) => (Some(failure.code), true),
        };
        let elapsed = started.elapsed();
        tracing::info!(
            tool = shown,
            code = code.map(Code::as_str),
            is_error,
            ?elapsed,
            "tool called"
        );
        let mut body = json!({
            "callId": call.id,
            "tool": tool,
            "isError": is_error,
            "tookMs": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(code) = code {
            body["code"] = json!(code);
        }
        self.job.events().send(EventKind::ToolFinished, body).await;
        answer
    }

    async fn add(&mut self, message: NewMessage) {
        let body = json!({ "role": message.role, "content": message.content });
        self.job
            .events()
            .send(EventKind::MessageCompleted, body)
            .await;
        self.added.push(message);
    }
}

/// What the run gives back, or why an answer without tool calls is none.
fn final_answer(text: &str, answer: &Answer, steps: u32) -> Result<serde_json::Value, Failure> {
    match answer.finish.reason {
        FinishReason::Length if answer.bounded_by_budget => return Err(tokens_spent()),
        FinishReason::ContentFilter => {
            let text = "the provider's filter stopped the answer";
            let failure = Failure::new(Code::ProviderFailed, text);
            return Err(Failure {
                retryable: false,
                ..failure
            });
        }
        _ if text.is_empty() => {
            let text = "the model gave an empty answer";
            return Err(Failure::new(Code::ProviderFailed, text));
        }
        _ => {}
    }
    let reason = match answer.finish.reason {
        FinishReason::Length => "length",
        _ => "stop",
    };
    Ok(json!({ "text": text, "steps": steps, "finishReason": reason }))
}
