//! Compiled expressions.

use regex_lite::Regex;

/// A node of an expression.
#[derive(Debug)]
pub(super) struct Node {
    /// The byte of the text at which a rejection reports this node.
    pub(super) at: usize,
    /// One more than the depth of the deepest operand.
    pub(super) depth: usize,
    pub(super) expression: Expression,
}

#[derive(Debug)]
pub(super) enum Expression {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    /// The variable `event`.
    Event,
    /// The variable `kind`.
    Kind,
    /// The variable `subject`.
    Subject,
    /// The variable of a macro, by the number of macros around that macro.
    Local(usize),
    List(Box<[Node]>),
    /// Keys and values in turn.
    Map(Box<[Node]>),
    Select(Box<Node>, Box<str>),
    Has(Box<Node>, Box<str>),
    Index(Box<[Node; 2]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    /// Condition, then, otherwise.
    If(Box<[Node; 3]>),
    Binary(Operator, Box<[Node; 2]>),
    Call(Function, Box<[Node]>),
    Matches(Box<Node>, Box<Pattern>),
    /// A list or map, and the expressions that are evaluated for each of its elements.
    Macro(Macro, Box<Node>, Box<[Node]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Dyn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    /// `map` with three arguments: a condition precedes the result.
    FilterMap,
}

/// A regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// Steps for each byte of the searched text.
    pub(super) steps: usize,
}

impl Node {
    /// The type of the result, if it is the same in every evaluation.
    pub(super) fn kind(&self) -> Option<&'static str> {
        use Expression as E;
        Some(match &self.expression {
            E::Null => "null",
            E::Bool(_)
            | E::Has(..)
            | E::Not(_)
            | E::And(_)
            | E::Or(_)
            | E::Matches(..)
            | E::Macro(Macro::All | Macro::Exists | Macro::ExistsOne, ..) => "bool",
            E::Int(_) | E::Uint(_) | E::Double(_) | E::Negate(_) => "number",
            E::Text(_) | E::Kind => "string",
            E::List(_) | E::Macro(Macro::Filter | Macro::Map | Macro::FilterMap, ..) => "list",
            E::Map(_) | E::Event => "map",
            E::Subject | E::Local(_) | E::Select(..) | E::Index(_) => return None,
            E::If(parts) => {
                let [_, then, otherwise] = parts.as_ref();
                return then.kind().filter(|kind| otherwise.kind() == Some(kind));
            }
            E::Binary(operator, operands) => match operator {
                // Numbers, strings and lists can be added.
                Operator::Add => return operands.iter().find_map(Node::kind),
                Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => "number",
                _ => "bool",
            },
            E::Call(function, _) => match function {
                Function::Size | Function::Int | Function::Uint | Function::Double => "number",
                Function::Contains | Function::StartsWith | Function::EndsWith | Function::Bool => "bool",
                Function::Text => "string",
                Function::Dyn => return None,
            },
        })
    }

    /// The depth of the deepest operand.
    pub(super) fn deepest(expression: &Expression) -> usize {
        use Expression as E;
        let of = |nodes: &[Self]| nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        match expression {
            E::Null
            | E::Bool(_)
            | E::Int(_)
            | E::Uint(_)
            | E::Double(_)
            | E::Text(_)
            | E::Event
            | E::Kind
            | E::Subject
            | E::Local(_) => 0,
            E::List(nodes) | E::Map(nodes) | E::And(nodes) | E::Or(nodes) | E::Call(_, nodes) => of(nodes),
            E::Select(node, _) | E::Has(node, _) | E::Not(node) | E::Negate(node) | E::Matches(node, _) => {
                node.depth
            }
            E::Index(nodes) | E::Binary(_, nodes) => of(nodes.as_ref()),
            E::If(nodes) => of(nodes.as_ref()),
            E::Macro(_, range, nodes) => of(nodes).max(range.depth),
        }
    }
}
