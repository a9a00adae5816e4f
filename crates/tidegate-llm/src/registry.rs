//! All providers of an instance, replaced as a whole whenever the configuration changes, without disturbing calls in
//! flight. Limiters outlive the change, so that a cap stays a cap across it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use secrecy::ExposeSecret;
use tidegate_model::{Code, ids::CatalogName};
use tidegate_policy::limiter::LimiterView;

use crate::{
    chat::{ChatRequest, ChatStream},
    config::{Catalogue, ProviderConfig, UnusableProvider},
    dice::Dice,
    error::LlmError,
    limited::Limited,
    limiter::ProviderLimiter,
    openai::OpenAi,
    provider::{CallContext, Provider},
    record::CallRecorder,
    retried::Retried,
};

/// The providers and models that can be called at this moment.
pub struct Providers {
    table: RwLock<Arc<Table>>,
    /// One limiter per provider name ever seen and still in use; also serialises replacements.
    limiters: Mutex<HashMap<CatalogName, Arc<ProviderLimiter>>>,
    recorder: Arc<dyn CallRecorder>,
    dice: Dice,
}

#[derive(Debug, Default)]
struct Table {
    providers: BTreeMap<CatalogName, Entry>,
    models: BTreeMap<CatalogName, (CatalogName, String)>,
}

#[derive(Debug)]
enum Entry {
    Usable {
        config: Box<ProviderConfig>,
        base: Arc<dyn Provider>,
        stack: Arc<dyn Provider>,
        limiter: Arc<ProviderLimiter>,
    },
    Unusable {
        reason: String,
        code: Code,
    },
}

/// One model, ready to be asked. Holds the provider as it was configured when the model was looked up.
#[derive(Debug, Clone)]
pub struct Model {
    alias: CatalogName,
    /// The provider's name of it.
    name: String,
    stack: Arc<dyn Provider>,
}

impl Model {
    /// The name it was looked up by.
    pub fn alias(&self) -> &CatalogName {
        &self.alias
    }

    /// The provider that serves it.
    pub fn provider(&self) -> &CatalogName {
        self.stack.id()
    }

    /// Asks: waits for a slot, retries before the first piece, then streams.
    pub async fn chat(
        &self,
        mut request: ChatRequest,
        call: &CallContext,
    ) -> Result<ChatStream, LlmError> {
        request.model.clone_from(&self.name);
        self.stack.chat(&request, call).await
    }
}

/// A provider as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderView {
    /// Its name.
    pub id: CatalogName,
    /// What its limiter counts, or why it cannot be used.
    pub state: Result<LimiterView, String>,
    /// The names of the models it serves.
    pub models: Vec<CatalogName>,
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Providers")
            .field("table", &*self.table.read())
            .finish_non_exhaustive()
    }
}

impl Providers {
    /// No provider yet. `recorder` takes one record per request.
    pub fn new(recorder: Arc<dyn CallRecorder>) -> Self {
        Self::with_dice(recorder, Dice::ambient())
    }

    /// The same with jitter handed in.
    pub fn with_dice(recorder: Arc<dyn CallRecorder>, dice: Dice) -> Self {
        Self {
            table: RwLock::default(),
            limiters: Mutex::default(),
            recorder,
            dice,
        }
    }

    /// Takes a new catalogue. New calls see it at once; calls in flight end as they began. Returns the providers that
    /// cannot be used; they affect nobody but callers of their own models.
    pub fn replace(&self, catalogue: Catalogue) -> Vec<UnusableProvider> {
        let mut limiters = self.limiters.lock();
        let before = Arc::clone(&self.table.read());
        let mut table = Table::default();
        let mut unusable = catalogue.unusable;
        for config in catalogue.providers {
            let id = config.id.clone();
            match self.entry(config, &before, &mut limiters) {
                Ok(entry) => {
                    table.providers.insert(id, entry);
                }
                Err(reason) => unusable.push(UnusableProvider {
                    id,
                    reason,
                    code: Code::ModelNotConfigured,
                }),
            }
        }
        for provider in &unusable {
            table.providers.insert(
                provider.id.clone(),
                Entry::Unusable {
                    reason: provider.reason.clone(),
                    code: provider.code,
                },
            );
        }
        for route in catalogue.models {
            table
                .models
                .insert(route.alias, (route.provider, route.model));
        }
        *self.table.write() = Arc::new(table);
        drop(before);
        // Calls in flight keep their limiter alive; one that comes back meanwhile must find it again.
        limiters.retain(|_, limiter| Arc::strong_count(limiter) > 1);
        unusable
    }

    fn entry(
        &self,
        config: ProviderConfig,
        before: &Table,
        limiters: &mut HashMap<CatalogName, Arc<ProviderLimiter>>,
    ) -> Result<Entry, String> {
        let base: Arc<dyn Provider> = match before.providers.get(&config.id) {
            Some(Entry::Usable {
                config: old, base, ..
            }) if same_client(old, &config) => Arc::clone(base),
            _ => Arc::new(OpenAi::new(&config)?),
        };
        let limiter = limiters.entry(config.id.clone()).or_insert_with(|| {
            ProviderLimiter::new(config.id.clone(), config.limits, self.dice.clone())
        });
        let limiter = Arc::clone(limiter);
        limiter.configure(config.limits);
        let slotted = Limited::new(
            Arc::clone(&base),
            Arc::clone(&limiter),
            config.timeouts,
            Arc::clone(&self.recorder),
        );
        let stack = Retried::new(
            Arc::new(slotted),
            config.retry,
            config.timeouts.total,
            self.dice.clone(),
        );
        Ok(Entry::Usable {
            config: Box::new(config),
            base,
            stack: Arc::new(stack),
            limiter,
        })
    }

    /// Looks a model up by the name callers use.
    pub fn model(&self, alias: &CatalogName) -> Result<Model, LlmError> {
        let table = Arc::clone(&self.table.read());
        let unknown = || LlmError::UnknownModel {
            alias: alias.as_str().to_owned(),
        };
        let (provider, model) = table.models.get(alias).ok_or_else(unknown)?;
        match table.providers.get(provider) {
            Some(Entry::Usable { stack, .. }) => Ok(Model {
                alias: alias.clone(),
                name: model.clone(),
                stack: Arc::clone(stack),
            }),
            Some(Entry::Unusable { reason, code }) => Err(LlmError::Unusable {
                provider: provider.clone(),
                reason: reason.clone(),
                code: *code,
            }),
            None => Err(LlmError::Unusable {
                provider: provider.clone(),
                reason: "there is no such provider; add it with `tidegate provider set`".to_owned(),
                code: Code::ModelNotConfigured,
            }),
        }
    }

    /// The names callers may use, in order.
    pub fn aliases(&self) -> Vec<CatalogName> {
        self.table.read().models.keys().cloned().collect()
    }

    /// Every provider with the figures of its limiter.
    pub fn views(&self) -> Vec<ProviderView> {
        let table = Arc::clone(&self.table.read());
        let served = |id: &CatalogName| {
            table
                .models
                .iter()
                .filter(|(_, route)| route.0 == *id)
                .map(|(alias, _)| alias.clone())
                .collect()
        };
        let view = |(id, entry): (&CatalogName, &Entry)| ProviderView {
            id: id.clone(),
            state: match entry {
                Entry::Usable { limiter, .. } => Ok(limiter.view()),
                Entry::Unusable { reason, .. } => Err(reason.clone()),
            },
            models: served(id),
        };
        table.providers.iter().map(view).collect()
    }
}

/// Whether the connections of one configuration serve the other too.
fn same_client(a: &ProviderConfig, b: &ProviderConfig) -> bool {
    let key = |config: &ProviderConfig| {
        config
            .api_key
            .as_ref()
            .map(|key| key.expose_secret().to_owned())
    };
    a.base_url == b.base_url
        && a.ca_file == b.ca_file
        && a.ask_for_usage == b.ask_for_usage
        && a.timeouts.connect == b.timeouts.connect
        && key(a) == key(b)
}
