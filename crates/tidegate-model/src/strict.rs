//! Reading what others wrote: an object is read from an object, at every depth.
//!
//! The derived readers also take an array of an object's members in their order, for formats that have no names. In JSON
//! and TOML that is a second form that no contract knows, and it changes its meaning with every member that is added. So
//! bodies, contracts and files are read through [`Strict`], which wraps a reader of any format and hands every value on
//! but those arrays. Not done here: which members there are; the types say that with `deny_unknown_fields`.
//!
//! A type with `#[serde(flatten)]`, `untagged` or `tag` reads what it buffered without this, so that contracts have none
//! of them for reading.

use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer as _,
    MapAccess, SeqAccess, VariantAccess, Visitor, value::MapAccessDeserializer,
};

/// What could not be read, with the path of the value at fault.
pub type Error<E = serde_json::Error> = serde_path_to_error::Error<E>;

/// Reads `T` by the reader of a format.
pub fn read<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    reader: D,
) -> Result<T, Error<D::Error>> {
    serde_path_to_error::deserialize(Strict(reader))
}

/// Reads `T` from the bytes of one JSON value.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = read(&mut reader)?;
    let root = || serde_path_to_error::Track::new().path();
    reader.end().map_err(|error| Error::new(root(), error))?;
    Ok(value)
}

/// Reads `T` from a JSON value.
pub fn from_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Error> {
    read(value)
}

/// A reader that takes no array for an object.
#[derive(Debug, Clone, Copy)]
pub struct Strict<D>(pub D);

macro_rules! hand_on {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.0.$method(Any(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    hand_on! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq deserialize_map
        deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let visitor = Object { visitor, fields };
        self.0.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_unit_struct(name, Any(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_newtype_struct(name, Any(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_tuple(len, Any(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_tuple_struct(name, len, Any(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        // Not as the format reads an enum: of JSON that is neither a text nor an object it says that it is no JSON.
        self.0.deserialize_any(Word { visitor, variants })
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit_on {
    ($($method:ident: $value:ty),* $(,)?) => {$(
        fn $method<E: de::Error>(self, value: $value) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

/// Who takes any value; what is inside it is read strictly again.
struct Any<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Any<V> {
    type Value = V::Value;

    visit_on! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128, visit_f32: f32,
        visit_f64: f64, visit_char: char, visit_str: &str, visit_borrowed_str: &'de str, visit_string: String,
        visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(reader))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, reader: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(reader))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(members))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variants: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Strict(variants))
    }
}

/// Who takes the members of an object, and no array of them. Whatever is neither is refused as the type refuses it.
struct Object<V> {
    visitor: V,
    fields: &'static [&'static str],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Object<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<V::Value, A::Error> {
        let members = self.fields.join(", ");
        let what = if members.is_empty() {
            "expected an object without members, found a list".to_owned()
        } else {
            format!(
                "expected an object, found a list; write {{…}} with these members by name: {members}"
            )
        };
        Err(de::Error::custom(what))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Strict(members))
    }
}

/// Who takes one of some words, alone or as the name of what comes with it.
struct Word<V> {
    visitor: V,
    variants: &'static [&'static str],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Word<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.variants.join(", "))
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<V::Value, E> {
        self.visitor.visit_enum(word.into_deserializer())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        let named = MapAccessDeserializer::new(members);
        self.visitor.visit_enum(Strict(named))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variants: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Strict(variants))
    }
}

/// What is read inside a value, strictly.
impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(reader))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, content) = self.0.variant_seed(Strict(seed))?;
        Ok((name, Strict(content)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Object { visitor, fields })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Point {
        x: i64,
        #[serde(default)]
        y: i64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Wrapped(Point);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Shape {
        Dot(Point),
        Line(Point, Point),
        Box { from: Point, to: Point },
        Nothing,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Drawing {
        one: Option<Point>,
        list: Vec<Point>,
        named: BTreeMap<String, Point>,
        wrapped: Option<Wrapped>,
        pair: Option<(i64, Point)>,
        shape: Option<Shape>,
        anything: Value,
    }

    /// Bad input: no object is read from a list of its members, wherever it stands.
    #[test]
    fn an_object_is_no_list_at_any_depth() {
        for (path, given) in [
            (".", json!([])),
            (".", json!([{"x": 1}])),
            ("one", json!({"one": [1, 2]})),
            ("list[1]", json!({"list": [{"x": 1}, [1, 2]]})),
            ("named.a", json!({"named": {"a": [1]}})),
            ("wrapped", json!({"wrapped": [1, 2]})),
            ("pair[1]", json!({"pair": [1, [1, 2]]})),
            ("shape.dot", json!({"shape": {"dot": [1, 2]}})),
            (
                "shape.line[0]",
                json!({"shape": {"line": [[1, 2], {"x": 1}]}}),
            ),
            ("shape.box", json!({"shape": {"box": [{"x": 1}, {"x": 1}]}})),
            (
                "shape.box.to",
                json!({"shape": {"box": {"from": {"x": 1}, "to": [1]}}}),
            ),
        ] {
            let text = given.to_string();
            let by_value = from_value::<Drawing>(given).unwrap_err();
            let by_text = from_slice::<Drawing>(text.as_bytes()).unwrap_err();
            for error in [by_value, by_text] {
                assert_eq!(error.path().to_string(), path, "{text}");
                let said = error.inner().to_string();
                // A list for the members of a variant is refused by its reader.
                let refused = said.contains("found a list; write {…}")
                    || said.starts_with("invalid type: sequence, expected struct variant");
                assert!(refused, "{said}");
            }
        }
    }

    /// Bad input: what is no word is a value of the wrong type, and no broken JSON.
    #[test]
    fn a_word_is_asked_for_by_its_words() {
        for (given, found) in [
            (json!({"shape": 7}), "integer `7`"),
            (json!({"shape": true}), "boolean `true`"),
            (json!({"shape": ["dot"]}), "sequence"),
        ] {
            let text = given.to_string();
            let by_value = from_value::<Drawing>(given).unwrap_err();
            let by_text = from_slice::<Drawing>(text.as_bytes()).unwrap_err();
            for error in [by_value, by_text] {
                assert_eq!(error.path().to_string(), "shape", "{text}");
                assert!(error.inner().is_data(), "{error}");
                let expected =
                    format!("invalid type: {found}, expected one of dot, line, box, nothing");
                assert!(error.inner().to_string().starts_with(&expected), "{error}");
            }
        }
        let two = br#"{"shape": {"dot": {"x": 1}, "line": [{"x": 1}, {"x": 1}]}}"#;
        assert!(from_slice::<Drawing>(two).is_err());
        for unknown in [r#"{"shape": "star"}"#, r#"{"shape": {"star": {}}}"#] {
            let error = from_slice::<Drawing>(unknown.as_bytes()).unwrap_err();
            let said = error.inner().to_string();
            assert!(said.starts_with("unknown variant `star`"), "{said}");
        }
    }

    #[test]
    fn everything_else_is_read_as_ever() {
        let given = json!({"one": {"x": 1}, "list": [{"x": 1, "y": 2}], "named": {"a": {"x": 1}}, "wrapped": {"x": 3},
            "pair": [1, {"x": 1}], "shape": {"line": [{"x": 1}, {"x": 2}]}, "anything": [[1, "a"], {"b": [null]}]});
        let read: Drawing = from_value(given.clone()).unwrap();
        assert_eq!(read.one, Some(Point { x: 1, y: 0 }));
        assert_eq!(read.list, [Point { x: 1, y: 2 }]);
        assert_eq!(read.named["a"].x, 1);
        assert_eq!(read.wrapped, Some(Wrapped(Point { x: 3, y: 0 })));
        assert_eq!(read.pair.unwrap().1.x, 1);
        let line = Shape::Line(Point { x: 1, y: 0 }, Point { x: 2, y: 0 });
        assert_eq!(read.shape, Some(line));
        assert_eq!(read.anything, given["anything"]);
        assert_eq!(
            from_value::<Shape>(json!("nothing")).unwrap(),
            Shape::Nothing
        );
        let trailing = from_slice::<Point>(br#"{"x": 1} {}"#).unwrap_err();
        assert!(trailing.inner().is_syntax());
    }
}
