//! What a statement's tree names: functions, operators, relations, the temporary schema.
//!
//! The tree has some 270 kinds of nodes, and a walk that knows them one by one forgets one. So this walks whatever the
//! tree can be serialised as, which is all of it, and takes note of the kinds it looks for.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

use crate::act::{Object, is_temporary_schema};

#[derive(Debug, Default)]
pub(crate) struct Mentions {
    pub(crate) functions: Vec<Object>,
    pub(crate) operators: Vec<Object>,
    /// Tables and views, and names of WITH, which look the same.
    pub(crate) relations: Vec<Object>,
    /// Something is called pg_temp, or made TEMPORARY.
    pub(crate) temporary: bool,
    /// Rows are changed.
    pub(crate) writes: bool,
    /// There is more to it than constants: something is called, read or cast.
    pub(crate) computes: bool,
}

impl Mentions {
    pub(crate) fn of(tree: &impl Serialize) -> Self {
        let mut walk = Walk::default();
        // It writes nowhere, so nothing can go wrong.
        let _written = tree.serialize(&mut walk);
        walk.mentions
    }
}

#[derive(Default)]
struct Walk {
    mentions: Mentions,
    /// The parts of a name, while within a field that is one.
    name: Option<Vec<String>>,
}

impl Walk {
    /// The strings within a value, in order.
    fn name<T: Serialize + ?Sized>(&mut self, value: &T) -> Vec<String> {
        let outer = self.name.replace(Vec::new());
        let _written = value.serialize(&mut *self);
        std::mem::replace(&mut self.name, outer).unwrap_or_default()
    }

    fn last_name<T: Serialize + ?Sized>(&mut self, value: &T) -> String {
        self.name(value).pop().unwrap_or_default()
    }
}

/// A struct under way. Most are of no interest but for what is in them.
struct Struct<'a> {
    walk: &'a mut Walk,
    kind: Kind,
}

enum Kind {
    Other,
    /// Of a function, by the field that names it; and of a method of TABLESAMPLE, which is one.
    Call {
        field: &'static str,
        name: Vec<String>,
    },
    /// Of an operator, by the field that names it.
    Operator(&'static str),
    Relation {
        schema: String,
        name: String,
    },
}

impl Kind {
    fn of(name: &str) -> Self {
        let call = |field| Self::Call { field, name: Vec::new() };
        match name {
            "FuncCall" => call("funcname"),
            "RangeTableSample" => call("method"),
            "AExpr" => Self::Operator("name"),
            "SubLink" => Self::Operator("oper_name"),
            "SortBy" => Self::Operator("use_op"),
            "RangeVar" => Self::Relation { schema: String::new(), name: String::new() },
            _ => Self::Other,
        }
    }
}

impl ser::SerializeStruct for Struct<'_> {
    type Ok = ();
    type Error = Never;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        let Self { walk, kind } = self;
        match kind {
            Kind::Call { field, name } if key == *field => *name = walk.name(value),
            Kind::Operator(field) if key == *field => {
                let name = walk.name(value);
                if !name.is_empty() {
                    walk.mentions.operators.push(Object::of(&name));
                }
            }
            Kind::Relation { schema, .. } if key == "schemaname" => *schema = walk.last_name(value),
            Kind::Relation { name, .. } if key == "relname" => *name = walk.last_name(value),
            // RELPERSISTENCE_TEMP
            Kind::Relation { .. } if key == "relpersistence" => {
                let persistence = walk.last_name(value);
                walk.mentions.temporary |= persistence == "t";
            }
            _ => return value.serialize(&mut **walk),
        }
        Ok(())
    }

    fn end(self) -> Result<(), Never> {
        let mentions = &mut self.walk.mentions;
        match self.kind {
            Kind::Call { name, .. } => mentions.functions.push(Object::of(&name)),
            Kind::Relation { schema, name } => {
                let schema = Some(schema).filter(|schema| !schema.is_empty());
                mentions.relations.push(Object { schema, name });
            }
            Kind::Other | Kind::Operator(_) => {}
        }
        Ok(())
    }
}

/// Values in which nothing can be named.
macro_rules! nothing {
    ($($method:ident($kind:ty)),+) => {
        $(fn $method(self, _: $kind) -> Result<(), Never> {
            Ok(())
        })+
    };
}

impl<'a> Serializer for &'a mut Walk {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Struct<'a>;
    type SerializeStructVariant = Struct<'a>;

    nothing!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_char(char),
        serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str)
    );

    fn serialize_str(self, text: &str) -> Result<(), Never> {
        self.mentions.temporary |= is_temporary_schema(text);
        if let Some(name) = &mut self.name {
            name.push(text.to_owned());
        }
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Never> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Never> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Never> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Struct<'a>, Never> {
        self.mentions.writes |=
            matches!(name, "InsertStmt" | "UpdateStmt" | "DeleteStmt" | "MergeStmt");
        let kind = Kind::of(name);
        self.mentions.computes |=
            !matches!(kind, Kind::Other) || matches!(name, "TypeCast" | "ParamRef");
        Ok(Struct { walk: self, kind })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Struct<'a>, Never> {
        self.serialize_struct(variant, length)
    }
}

/// Lists of every sort: their elements are walked one by one.
macro_rules! list {
    ($($kind:ident::$method:ident),+) => {
        $(impl ser::$kind for &mut Walk {
            type Ok = ();
            type Error = Never;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Never> {
                Ok(())
            }
        })+
    };
}

list!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

impl ser::SerializeMap for &mut Walk {
    type Ok = ();
    type Error = Never;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Never> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Never> {
        Ok(())
    }
}

impl ser::SerializeStructVariant for Struct<'_> {
    type Ok = ();
    type Error = Never;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        ser::SerializeStruct::serialize_field(self, key, value)
    }

    fn end(self) -> Result<(), Never> {
        ser::SerializeStruct::end(self)
    }
}

/// The error of a serialiser that cannot fail.
#[derive(Debug)]
struct Never;

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tree that does not let itself be walked")
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}
