//! `tidegate conversation`.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use tidegate_model::{
    Capability, ConversationId,
    api::{ConversationView, CreateConversation, MessageView, SubmitTurn, TurnAccepted},
    run::ServiceClass,
};

use super::{
    page::{self, PageFlags},
    repeat::RepeatFlags,
    run,
};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    output::{facts, or_dash, table, time},
};

/// Conversations.
#[derive(Debug, Subcommand)]
pub enum ConversationCommand {
    /// Begin a conversation
    New {
        /// A title for lists
        #[arg(long)]
        title: Option<String>,
        /// The user it is for; another than the key's own needs the scope act_for_users
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        repeat: RepeatFlags,
    },
    /// List conversations, newest first
    List(PageFlags),
    /// Show a conversation
    Get {
        /// The conversation, conv_…
        conversation: ConversationId,
    },
    /// Say something and follow the answer
    Say(Say),
    /// What was said so far
    Messages {
        /// The conversation, conv_…
        conversation: ConversationId,
        #[command(flatten)]
        page: PageFlags,
    },
}

/// One turn.
#[derive(Debug, Args)]
pub struct Say {
    /// The conversation, conv_…, or `new` for a new one
    conversation: String,
    /// What to say
    input: String,
    /// What the pool must offer; chat unless given
    #[arg(long)]
    capability: Option<Capability>,
    /// What else the pool must have, JSON or @FILE with it: '{"sandbox": "container"}'
    #[arg(long, value_name = "JSON|@FILE")]
    requirements: Option<String>,
    /// interactive unless given; only less protection can be asked for
    #[arg(long)]
    service_class: Option<ServiceClass>,
    /// The turn ends as expired at this time
    #[arg(long, value_name = "TIME", value_parser = crate::time::at)]
    deadline: Option<DateTime<Utc>>,
    /// The user it is for; another than the key's own needs the scope act_for_users
    #[arg(long)]
    user: Option<String>,
    #[command(flatten)]
    repeat: RepeatFlags,
    /// Do not wait for the answer
    #[arg(long)]
    no_wait: bool,
}

impl ConversationCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Tenant)?;
        match self {
            Self::New {
                title,
                user,
                repeat,
            } => {
                let view = repeat
                    .on(&client)
                    .create_conversation(&CreateConversation {
                        title,
                        user,
                        turn: None,
                    })
                    .await?;
                output.show(&view, |view| view.conversation_id.to_string());
                Ok(Exit::Success)
            }
            Self::List(page) => {
                let answer = client.conversations(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
                Ok(Exit::Success)
            }
            Self::Get { conversation } => {
                let view = client.conversation(conversation).await?;
                output.show(&view, |view| list(std::slice::from_ref(view)));
                Ok(Exit::Success)
            }
            Self::Say(say) => say.run(context, &client).await,
            Self::Messages { conversation, page } => {
                let answer = client.messages(conversation, &page.query()).await?;
                output.show(&answer, |page| messages(&page.items));
                page::hint(output, &answer);
                Ok(Exit::Success)
            }
        }
    }
}

impl Say {
    async fn run(self, context: &Context, client: &tidegate_client::Client) -> Outcome {
        let output = context.output;
        if self.input.is_empty() {
            return Err(Failure::usage("INPUT: a turn needs a text"));
        }
        let body = SubmitTurn {
            input: self.input,
            capability: self.capability,
            requirements: run::needs(self.requirements.as_deref())?,
            service_class: self.service_class,
            deadline: self.deadline,
            user: self.user,
        };
        let accepted = if self.conversation == "new" {
            begin(context, &self.repeat.on(client), body).await?
        } else {
            let conversation = self.conversation.parse().map_err(|error| {
                Failure::usage(format!("{}: {error}", self.conversation))
                    .remedy("`tidegate conversation new` prints one, or say `new`")
            })?;
            let key = self.repeat.key();
            client.submit_turn(conversation, &body, key).await?
        };
        if self.no_wait {
            output.show(&accepted, |accepted| {
                facts([
                    ("run", Some(accepted.run_id.to_string())),
                    ("state", Some(accepted.state.to_string())),
                    ("repeated", accepted.repeated.then(|| "yes".to_owned())),
                ])
            });
            return Ok(Exit::Success);
        }
        output.note(&format!("run {}", accepted.run_id));
        run::follow(output, client, accepted.run_id, 0).await
    }
}

/// Begins a conversation with its first turn, in one call: a turn that is refused leaves no conversation.
async fn begin(
    context: &Context,
    client: &tidegate_client::Client,
    turn: SubmitTurn,
) -> Outcome<TurnAccepted> {
    let body = CreateConversation {
        title: None,
        user: turn.user.clone(),
        turn: Some(turn),
    };
    let view = client.create_conversation(&body).await?;
    let note = format!("conversation {}", view.conversation_id);
    context.output.note(&note);
    view.turn.ok_or_else(|| {
        // A server before this release would have refused the member; so this one has lost it.
        Failure::new(
            Exit::Failed,
            "the server began a conversation without its turn",
        )
        .remedy(
            "say it again in that conversation, and give the server the release of this command",
        )
    })
}

fn list(conversations: &[ConversationView]) -> String {
    table(
        ["conversation", "title", "user", "began"],
        conversations.iter().map(|conversation| {
            [
                conversation.conversation_id.to_string(),
                or_dash(conversation.title.as_deref()),
                or_dash(conversation.user.as_deref()),
                time(conversation.created_at),
            ]
        }),
    )
}

fn messages(messages: &[MessageView]) -> String {
    let mut text = String::new();
    for message in messages {
        let content = &message.content;
        let said = content
            .as_str()
            .or_else(|| content["text"].as_str())
            .map_or_else(|| content.to_string(), ToOwned::to_owned);
        let when = time(message.created_at);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[{}] {} {when}", message.seq, message.role);
        for call in content["toolCalls"].as_array().into_iter().flatten() {
            let name = call["name"].as_str().unwrap_or("?");
            let _ = writeln!(text, "    calls {name}");
        }
        for line in said.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    if text.is_empty() {
        "nothing was said yet".to_owned()
    } else {
        text
    }
}
