//! Reading a token into types, before any signature is looked at. What is not in the vocabulary is refused, and so is
//! what does not read back to the same bytes: another reader could see more in it than this one.

use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use biscuit_auth::{
    datalog::SymbolTable,
    format::schema::{self, check::Kind, op, op_binary, proof, term},
};
use prost::Message;
use tidegate_model::contracts::{AdmissionGrant, GrantKeyId};

use crate::{
    limits::{BLOCKS_MAX, GRANTS_MAX, SYMBOLS_MAX, TOKEN_MAX_BYTES},
    problem::GrantProblem,
    terms::CallTerms,
    verify::BlockId,
};

mod blocks;

/// Versions of blocks that have nothing but what is read here.
const BLOCK_VERSIONS: std::ops::RangeInclusive<u32> = 3..=6;

/// What a token says; nothing of it is proven.
#[derive(Debug)]
pub(crate) struct Said {
    pub bytes: Vec<u8>,
    pub key: GrantKeyId,
    pub sealed: bool,
    pub grant: AdmissionGrant,
    /// The blocks that narrow it, in their order.
    pub narrowed: Vec<(BlockId, CallTerms)>,
}

pub(crate) const fn foreign(what: &'static str) -> GrantProblem {
    GrantProblem::Foreign { what }
}

pub(crate) const fn malformed(why: &'static str) -> GrantProblem {
    GrantProblem::Malformed { why }
}

/// Reads a token.
pub(crate) fn read(token: &str) -> Result<Said, GrantProblem> {
    if token.len() > TOKEN_MAX_BYTES {
        return Err(GrantProblem::TooLarge {
            what: "bytes",
            limit: TOKEN_MAX_BYTES,
        });
    }
    let bytes = URL_SAFE
        .decode(token)
        .map_err(|_| malformed("it is not base64 for URLs"))?;
    let outer = schema::Biscuit::decode(&bytes[..]).map_err(|_| malformed("it is no biscuit"))?;
    if outer.encode_to_vec() != bytes {
        return Err(malformed("it is not written in its one form"));
    }
    if outer.blocks.len() >= BLOCKS_MAX {
        return Err(GrantProblem::TooLarge {
            what: "blocks",
            limit: BLOCKS_MAX,
        });
    }
    let key = outer.root_key_id.ok_or(malformed("it names no key"))?;
    let sealed = match &outer.proof.content {
        Some(proof::Content::NextSecret(_)) => false,
        Some(proof::Content::FinalSignature(_)) => true,
        None => return Err(malformed("it has no proof")),
    };
    let mut symbols = SymbolTable::new();
    let authority = block(&outer.authority, &mut symbols)?;
    let grant = blocks::authority(&authority, &symbols)?;
    let mut narrowed = Vec::with_capacity(outer.blocks.len());
    for signed in &outer.blocks {
        let content = block(signed, &mut symbols)?;
        let id = BlockId::of(&signed.signature)?;
        narrowed.push((id, blocks::narrowing(&content, &symbols)?));
    }
    Ok(Said {
        bytes,
        key: GrantKeyId(key),
        sealed,
        grant,
        narrowed,
    })
}

/// One block, with its names added to those before it.
fn block(
    signed: &schema::SignedBlock,
    symbols: &mut SymbolTable,
) -> Result<schema::Block, GrantProblem> {
    if signed.external_signature.is_some() {
        return Err(foreign("a block of a third party"));
    }
    let block =
        schema::Block::decode(&signed.block[..]).map_err(|_| malformed("a block is damaged"))?;
    if block.encode_to_vec() != signed.block {
        return Err(malformed("a block is not written in its one form"));
    }
    if !block.version.is_some_and(|it| BLOCK_VERSIONS.contains(&it)) {
        return Err(foreign("a block of an unknown version"));
    }
    if !block.rules.is_empty() {
        return Err(foreign("a rule"));
    }
    if !block.scope.is_empty() || !block.public_keys.is_empty() {
        return Err(foreign("trust in another key"));
    }
    if block.context.is_some() {
        return Err(foreign("a context"));
    }
    for (what, found, limit) in [
        ("symbols", block.symbols.len(), SYMBOLS_MAX),
        ("facts", block.facts.len(), GRANTS_MAX + 16),
        ("checks", block.checks.len(), 8),
    ] {
        if found > limit {
            return Err(GrantProblem::TooLarge { what, limit });
        }
    }
    SymbolTable::from(block.symbols.clone())
        .and_then(|own| symbols.extend(&own))
        .map_err(|_| malformed("its names overlap"))?;
    Ok(block)
}

/// A value in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value<'a> {
    Variable(u32),
    Integer(i64),
    Text(&'a str),
    Date(u64),
}

/// A named list of values.
#[derive(Debug, PartialEq, Eq)]
struct Word<'a> {
    name: &'a str,
    values: Vec<Value<'a>>,
}

/// How a variable is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    Below,
    AtMost,
}

/// A query of a check: one word, and at most one comparison of a variable of it.
#[derive(Debug, PartialEq, Eq)]
struct Query<'a> {
    word: Word<'a>,
    comparison: Option<(u32, Compared, Value<'a>)>,
}

fn name(symbols: &SymbolTable, index: u64) -> Result<&str, GrantProblem> {
    symbols
        .get_symbol(index)
        .ok_or(malformed("it uses a name that it does not have"))
}

fn value<'a>(term: &schema::Term, symbols: &'a SymbolTable) -> Result<Value<'a>, GrantProblem> {
    match &term.content {
        Some(term::Content::Variable(variable)) => Ok(Value::Variable(*variable)),
        Some(term::Content::Integer(integer)) => Ok(Value::Integer(*integer)),
        Some(term::Content::String(text)) => Ok(Value::Text(name(symbols, *text)?)),
        Some(term::Content::Date(seconds)) => Ok(Value::Date(*seconds)),
        _ => Err(foreign("a value of an unknown kind")),
    }
}

fn word<'a>(
    predicate: &schema::Predicate,
    symbols: &'a SymbolTable,
) -> Result<Word<'a>, GrantProblem> {
    let values: Result<_, _> = predicate
        .terms
        .iter()
        .map(|term| value(term, symbols))
        .collect();
    Ok(Word {
        name: name(symbols, predicate.name)?,
        values: values?,
    })
}

fn queries<'a>(
    check: &schema::Check,
    symbols: &'a SymbolTable,
) -> Result<Vec<Query<'a>>, GrantProblem> {
    // `check all` and `reject if` mean something else with the same words.
    if !matches!(check.kind, None | Some(0)) {
        return Err(foreign("a check of another kind"));
    }
    const { assert!(Kind::One as i32 == 0) };
    check
        .queries
        .iter()
        .map(|query| self::query(query, symbols))
        .collect()
}

fn query<'a>(rule: &schema::Rule, symbols: &'a SymbolTable) -> Result<Query<'a>, GrantProblem> {
    if !rule.scope.is_empty() {
        return Err(foreign("trust in another key"));
    }
    let [body] = &rule.body[..] else {
        return Err(foreign("a check of several words"));
    };
    let comparison = match &rule.expressions[..] {
        [] => None,
        [expression] => Some(comparison(expression, symbols)?),
        _ => return Err(foreign("a check of several comparisons")),
    };
    Ok(Query {
        word: word(body, symbols)?,
        comparison,
    })
}

fn comparison<'a>(
    expression: &schema::Expression,
    symbols: &'a SymbolTable,
) -> Result<(u32, Compared, Value<'a>), GrantProblem> {
    let unknown = || foreign("a comparison of an unknown kind");
    let contents: Vec<_> = expression.ops.iter().map(|op| &op.content).collect();
    let [
        Some(op::Content::Value(left)),
        Some(op::Content::Value(right)),
        Some(op::Content::Binary(how)),
    ] = &contents[..]
    else {
        return Err(unknown());
    };
    let Value::Variable(variable) = value(left, symbols)? else {
        return Err(unknown());
    };
    let compared = if how.ffi_name.is_some() {
        return Err(unknown());
    } else if how.kind == op_binary::Kind::LessThan as i32 {
        Compared::Below
    } else if how.kind == op_binary::Kind::LessOrEqual as i32 {
        Compared::AtMost
    } else {
        return Err(unknown());
    };
    Ok((variable, compared, value(right, symbols)?))
}
