//! Evaluation of an expression for one event.
//!
//! Each node costs one step. An operation whose time depends on the size of a value costs more. Errors have
//! no text: if the evaluation fails, the event does not match.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::rc::Rc;

use super::Input;
use super::document::{Document, Item};
use super::tree::{Expression, Function, Macro, Node, Operator};
use super::value::{Text, Value};

/// Bytes of a string that are read for one step.
const BYTES: usize = 16;
/// Keys or elements that are skipped for one step.
const SKIPPED: usize = 4;

/// Why the evaluation has no value.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// An error as CEL defines it. The other operand of `&&` or `||` may absorb it.
    Error,
    /// No steps are left.
    Exhausted,
}

type Evaluated<'a> = Result<Value<'a>, Stop>;

/// Whether an expression results in true.
pub(super) fn matches(node: &Node, input: Input<'_>) -> bool {
    let document = OnceCell::new();
    let mut evaluation = Evaluation {
        input,
        document: &document,
        variables: Vec::new(),
        left: input.budget(),
    };
    matches!(evaluation.value(node), Ok(Value::Bool(true)))
}

struct Evaluation<'a> {
    input: Input<'a>,
    /// The parsed event; parsed when it is first needed.
    document: &'a OnceCell<Option<Document<'a>>>,
    /// The values of the macros' variables, outermost first.
    variables: Vec<Value<'a>>,
    /// The remaining steps.
    left: usize,
}

impl<'a> Evaluation<'a> {
    fn spend(&mut self, steps: usize) -> Result<(), Stop> {
        self.left = self.left.checked_sub(steps).ok_or(Stop::Exhausted)?;
        Ok(())
    }

    fn document(&self) -> Result<&'a Document<'a>, Stop> {
        let document = self.document.get_or_init(|| Document::parse(self.input.body));
        document.as_ref().ok_or(Stop::Error)
    }

    /// A value of the event.
    fn item(&self, index: usize) -> Evaluated<'a> {
        Ok(match self.document()?.item(index).ok_or(Stop::Error)? {
            Item::Null => Value::Null,
            Item::Bool(value) => Value::Bool(*value),
            Item::Int(value) => Value::Int(*value),
            Item::Uint(value) => Value::Uint(*value),
            Item::Double(value) => Value::Double(*value),
            Item::Text(text) => Value::Text(Text::Borrowed(text)),
            Item::List { .. } => Value::EventList(index),
            Item::Map { .. } => Value::EventMap(index),
        })
    }

    fn value(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.spend(1)?;
        Ok(match &node.expression {
            Expression::Null => Value::Null,
            Expression::Bool(value) => Value::Bool(*value),
            Expression::Int(value) => Value::Int(*value),
            Expression::Uint(value) => Value::Uint(*value),
            Expression::Double(value) => Value::Double(*value),
            Expression::Text(text) => Value::Text(Text::Borrowed(text)),
            Expression::Event => self.item(0)?,
            Expression::Kind => Value::Text(Text::Borrowed(self.input.kind)),
            Expression::Subject => match self.input.subject {
                Some(subject) => Value::Text(Text::Borrowed(subject)),
                None => Value::Null,
            },
            Expression::Local(index) => self.variables.get(*index).cloned().ok_or(Stop::Error)?,
            Expression::List(nodes) => Value::List(self.values(nodes)?.into()),
            Expression::Map(nodes) => self.map(nodes)?,
            Expression::Select(value, field) => {
                let value = self.value(value)?;
                self.field(&value, field)?.ok_or(Stop::Error)?
            }
            Expression::Has(value, field) => {
                let value = self.value(value)?;
                Value::Bool(self.field(&value, field)?.is_some())
            }
            Expression::Index(operands) => {
                let [value, index] = operands.as_ref();
                let (value, index) = (self.value(value)?, self.value(index)?);
                self.index(&value, &index)?
            }
            Expression::Not(operand) => Value::Bool(!self.bool(operand)?),
            Expression::Negate(operand) => match self.value(operand)? {
                Value::Int(value) => Value::Int(value.checked_neg().ok_or(Stop::Error)?),
                Value::Double(value) => Value::Double(-value),
                _ => return Err(Stop::Error),
            },
            Expression::And(operands) => self.decide(operands.iter(), false, Self::bool)?,
            Expression::Or(operands) => self.decide(operands.iter(), true, Self::bool)?,
            Expression::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                let chosen = if self.bool(condition)? { then } else { otherwise };
                self.value(chosen)?
            }
            Expression::Binary(operator, operands) => {
                let [left, right] = operands.as_ref();
                let (left, right) = (self.value(left)?, self.value(right)?);
                self.binary(*operator, &left, &right)?
            }
            Expression::Call(function, arguments) => self.call(*function, arguments)?,
            Expression::Matches(text, pattern) => {
                let Value::Text(text) = self.value(text)? else {
                    return Err(Stop::Error);
                };
                let text = text.as_str();
                self.spend(text.len().saturating_mul(pattern.steps))?;
                Value::Bool(pattern.regex.is_match(text))
            }
            Expression::Macro(which, range, body) => self.macro_(*which, range, body)?,
        })
    }

    fn values(&mut self, nodes: &'a [Node]) -> Result<Vec<Value<'a>>, Stop> {
        nodes.iter().map(|node| self.value(node)).collect()
    }

    fn bool(&mut self, node: &'a Node) -> Result<bool, Stop> {
        match self.value(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Stop::Error),
        }
    }

    /// Evaluates `&&`, `||`, `all` and `exists`: the first item that is `decisive` is the result, even after
    /// errors.
    fn decide<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        decisive: bool,
        check: impl Fn(&mut Self, T) -> Result<bool, Stop>,
    ) -> Evaluated<'a> {
        let mut failed = false;
        for item in items {
            match check(self, item) {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(Stop::Error) => failed = true,
                Err(Stop::Exhausted) => return Err(Stop::Exhausted),
            }
        }
        if failed {
            Err(Stop::Error)
        } else {
            Ok(Value::Bool(!decisive))
        }
    }

    fn map(&mut self, nodes: &'a [Node]) -> Evaluated<'a> {
        let entries = self.values(nodes)?;
        for (number, entry) in entries.chunks(2).enumerate() {
            let [key, _] = entry else { return Err(Stop::Error) };
            if !matches!(
                key,
                Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Text(_)
            ) {
                return Err(Stop::Error);
            }
            for before in entries.chunks(2).take(number) {
                if let [other, _] = before
                    && self.equal(other, key)?
                {
                    return Err(Stop::Error);
                }
            }
        }
        Ok(Value::Map(entries.into()))
    }

    /// The value of a field, a string key of a map; `None` if the map has no such key. Other types
    /// have no fields.
    fn field(&mut self, map: &Value<'a>, key: &str) -> Result<Option<Value<'a>>, Stop> {
        match map {
            Value::EventMap(index) => self.event_field(*index, key),
            Value::Map(entries) => self.entry(entries, &Value::Text(Text::Shared(key.into()))),
            _ => Err(Stop::Error),
        }
    }

    fn event_field(&mut self, map: usize, key: &str) -> Result<Option<Value<'a>>, Stop> {
        let document = self.document()?;
        let mut place = map + 1;
        for number in 0..document.length(map) {
            if number % SKIPPED == 0 {
                self.spend(1)?;
            }
            if let Some(Item::Text(found)) = document.item(place)
                && found == key
            {
                return self.item(place + 1).map(Some);
            }
            place = document.after(place + 1);
        }
        Ok(None)
    }

    fn entry(&mut self, entries: &[Value<'a>], key: &Value<'a>) -> Result<Option<Value<'a>>, Stop> {
        for entry in entries.chunks(2) {
            if let [found, value] = entry
                && self.equal(found, key)?
            {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }

    fn index(&mut self, value: &Value<'a>, index: &Value<'a>) -> Evaluated<'a> {
        match value {
            Value::List(elements) => {
                let found = position(index).and_then(|index| elements.get(index));
                found.cloned().ok_or(Stop::Error)
            }
            Value::EventList(list) => {
                let position = position(index).ok_or(Stop::Error)?;
                let document = self.document()?;
                if position >= document.length(*list) {
                    return Err(Stop::Error);
                }
                self.spend(position / SKIPPED)?;
                let mut place = list + 1;
                for _ in 0..position {
                    place = document.after(place);
                }
                self.item(place)
            }
            Value::Map(entries) => self.entry(entries, index)?.ok_or(Stop::Error),
            Value::EventMap(map) => {
                let Value::Text(key) = index else {
                    return Err(Stop::Error);
                };
                self.event_field(*map, key.as_str())?.ok_or(Stop::Error)
            }
            _ => Err(Stop::Error),
        }
    }

    fn binary(&mut self, operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Evaluated<'a> {
        Ok(match operator {
            Operator::Equal => Value::Bool(self.equal(left, right)?),
            Operator::NotEqual => Value::Bool(!self.equal(left, right)?),
            Operator::Less => Value::Bool(self.order(left, right)? == Some(Ordering::Less)),
            Operator::LessOrEqual => {
                let order = self.order(left, right)?;
                Value::Bool(matches!(order, Some(Ordering::Less | Ordering::Equal)))
            }
            Operator::Greater => Value::Bool(self.order(left, right)? == Some(Ordering::Greater)),
            Operator::GreaterOrEqual => {
                let order = self.order(left, right)?;
                Value::Bool(matches!(order, Some(Ordering::Greater | Ordering::Equal)))
            }
            Operator::In => Value::Bool(self.contains(right, left)?),
            Operator::Add => match (left, right) {
                (Value::Text(left), Value::Text(right)) => {
                    let (left, right) = (left.as_str(), right.as_str());
                    self.spend((left.len() + right.len()) / BYTES)?;
                    Value::from([left, right].concat())
                }
                (Value::List(_) | Value::EventList(_), Value::List(_) | Value::EventList(_)) => {
                    let mut elements = self.elements(left)?;
                    elements.extend(self.elements(right)?);
                    Value::List(elements.into())
                }
                _ => arithmetic(operator, left, right).ok_or(Stop::Error)?,
            },
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
                arithmetic(operator, left, right).ok_or(Stop::Error)?
            }
        })
    }

    /// The elements of a list, or the keys of a map; each costs a step.
    fn elements(&mut self, value: &Value<'a>) -> Result<Vec<Value<'a>>, Stop> {
        match value {
            Value::List(elements) => {
                self.spend(elements.len())?;
                Ok(elements.to_vec())
            }
            Value::Map(entries) => {
                self.spend(entries.len())?;
                Ok(entries.iter().step_by(2).cloned().collect())
            }
            Value::EventList(index) | Value::EventMap(index) => {
                let document = self.document()?;
                let map = matches!(value, Value::EventMap(_));
                let length = document.length(*index);
                self.spend(length)?;
                let mut elements = Vec::with_capacity(length);
                let mut place = index + 1;
                for _ in 0..length {
                    elements.push(self.item(place)?);
                    place = document.after(if map { place + 1 } else { place });
                }
                Ok(elements)
            }
            _ => Err(Stop::Error),
        }
    }

    /// Whether a list has an element, or a map a key.
    fn contains(&mut self, container: &Value<'a>, wanted: &Value<'a>) -> Result<bool, Stop> {
        match container {
            // Iterates over the elements without copying them.
            Value::List(elements) => {
                for element in elements.iter() {
                    if self.equal(element, wanted)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Value::EventMap(map) => match wanted {
                Value::Text(key) => Ok(self.event_field(*map, key.as_str())?.is_some()),
                _ => Ok(false),
            },
            _ => {
                for element in self.elements(container)? {
                    if self.equal(&element, wanted)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Compares two values. Values of different types are not equal, but numbers of different types
    /// may be.
    fn equal(&mut self, left: &Value<'a>, right: &Value<'a>) -> Result<bool, Stop> {
        self.spend(1)?;
        match (left, right) {
            (Value::Null, Value::Null) => Ok(true),
            (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
            (Value::Text(left), Value::Text(right)) => {
                let (left, right) = (left.as_str(), right.as_str());
                if left.len() != right.len() {
                    return Ok(false);
                }
                self.spend(left.len() / BYTES)?;
                Ok(left == right)
            }
            (Value::List(_) | Value::EventList(_), Value::List(_) | Value::EventList(_)) => {
                let (left, right) = (self.elements(left)?, self.elements(right)?);
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(&right) {
                    if !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Map(_) | Value::EventMap(_), Value::Map(_) | Value::EventMap(_)) => {
                let (keys, others) = (self.elements(left)?, self.elements(right)?);
                if keys.len() != others.len() {
                    return Ok(false);
                }
                for key in keys {
                    let value = self.index(left, &key)?;
                    if !self.contains(right, &key)? {
                        return Ok(false);
                    }
                    let other = self.index(right, &key)?;
                    if !self.equal(&value, &other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(left.order_of_numbers(right) == Some(Ordering::Equal)),
        }
    }

    /// The order of numbers, strings or bools. `None` for NaN.
    fn order(&mut self, left: &Value<'a>, right: &Value<'a>) -> Result<Option<Ordering>, Stop> {
        match (left, right) {
            (Value::Text(left), Value::Text(right)) => {
                let (left, right) = (left.as_str(), right.as_str());
                self.spend(left.len().min(right.len()) / BYTES)?;
                Ok(Some(left.cmp(right)))
            }
            (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
            _ if left.is_number() && right.is_number() => Ok(left.order_of_numbers(right)),
            _ => Err(Stop::Error),
        }
    }

    fn call(&mut self, function: Function, arguments: &'a [Node]) -> Evaluated<'a> {
        let first = self.value(arguments.first().ok_or(Stop::Error)?)?;
        match function {
            Function::Dyn => Ok(first),
            Function::Size => self.size(&first),
            Function::Contains | Function::StartsWith | Function::EndsWith => {
                let second = self.value(arguments.get(1).ok_or(Stop::Error)?)?;
                let (Value::Text(text), Value::Text(part)) = (&first, &second) else {
                    return Err(Stop::Error);
                };
                let (text, part) = (text.as_str(), part.as_str());
                self.spend((text.len() + part.len()) / BYTES)?;
                Ok(Value::Bool(match function {
                    Function::Contains => text.contains(part),
                    Function::StartsWith => text.starts_with(part),
                    _ => text.ends_with(part),
                }))
            }
            Function::Bool | Function::Int | Function::Uint | Function::Double | Function::Text => {
                if let Value::Text(text) = &first {
                    self.spend(text.as_str().len() / BYTES)?;
                }
                convert(function, first).ok_or(Stop::Error)
            }
        }
    }

    fn size(&mut self, value: &Value<'a>) -> Evaluated<'a> {
        let size = match value {
            Value::Text(text) => {
                self.spend(text.as_str().len() / BYTES)?;
                text.as_str().chars().count()
            }
            Value::List(elements) => elements.len(),
            Value::Map(entries) => entries.len() / 2,
            Value::EventList(index) | Value::EventMap(index) => self.document()?.length(*index),
            _ => return Err(Stop::Error),
        };
        i64::try_from(size).map(Value::Int).map_err(|_| Stop::Error)
    }

    fn macro_(&mut self, which: Macro, range: &'a Node, body: &'a [Node]) -> Evaluated<'a> {
        let range = self.value(range)?;
        let elements = self.elements(&range)?;
        let (Some(first), last) = (body.first(), body.last()) else {
            return Err(Stop::Error);
        };
        let last = last.unwrap_or(first);
        match which {
            Macro::All => self.decide(elements, false, |it, element| it.with(element, first, Self::bool)),
            Macro::Exists => self.decide(elements, true, |it, element| it.with(element, first, Self::bool)),
            Macro::ExistsOne => {
                let mut count = 0;
                for element in elements {
                    count += usize::from(self.with(element, first, Self::bool)?);
                }
                Ok(Value::Bool(count == 1))
            }
            Macro::Filter => {
                let mut kept = Vec::new();
                for element in elements {
                    if self.with(element.clone(), first, Self::bool)? {
                        kept.push(element);
                    }
                }
                Ok(Value::List(kept.into()))
            }
            Macro::Map | Macro::FilterMap => {
                let mut made = Vec::new();
                for element in elements {
                    if which == Macro::Map || self.with(element.clone(), first, Self::bool)? {
                        made.push(self.with(element, last, Self::value)?);
                    }
                }
                Ok(Value::List(Rc::from(made)))
            }
        }
    }

    /// Evaluates a node with one more variable.
    fn with<T>(
        &mut self,
        variable: Value<'a>,
        node: &'a Node,
        evaluate: impl Fn(&mut Self, &'a Node) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.variables.push(variable);
        let result = evaluate(self, node);
        self.variables.pop();
        result
    }
}

/// Converts an index to a position in a list.
fn position(index: &Value<'_>) -> Option<usize> {
    usize::try_from(index.integer()?).ok()
}

/// Computes with operands of one type; `None` on overflow and division by zero.
fn arithmetic<'a>(operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Option<Value<'a>> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            let compute = match operator {
                Operator::Add => i64::checked_add,
                Operator::Subtract => i64::checked_sub,
                Operator::Multiply => i64::checked_mul,
                Operator::Divide => i64::checked_div,
                Operator::Remainder => i64::checked_rem,
                _ => return None,
            };
            compute(*left, *right).map(Value::Int)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            let compute = match operator {
                Operator::Add => u64::checked_add,
                Operator::Subtract => u64::checked_sub,
                Operator::Multiply => u64::checked_mul,
                Operator::Divide => u64::checked_div,
                Operator::Remainder => u64::checked_rem,
                _ => return None,
            };
            compute(*left, *right).map(Value::Uint)
        }
        (Value::Double(left), Value::Double(right)) => Some(Value::Double(match operator {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide => left / right,
            // CEL does not define the remainder of doubles.
            _ => return None,
        })),
        _ => None,
    }
}

/// Converts between numbers, strings and bools, as CEL defines it.
fn convert(function: Function, value: Value<'_>) -> Option<Value<'_>> {
    Some(match (function, value) {
        (Function::Bool, value @ Value::Bool(_))
        | (Function::Int, value @ Value::Int(_))
        | (Function::Uint, value @ Value::Uint(_))
        | (Function::Double, value @ Value::Double(_))
        | (Function::Text, value @ Value::Text(_)) => value,
        (Function::Bool, Value::Text(text)) => Value::Bool(match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return None,
        }),
        (Function::Int, Value::Uint(value)) => Value::Int(value.try_into().ok()?),
        (Function::Int, Value::Double(value)) => Value::Int(whole(value)?.try_into().ok()?),
        (Function::Int, Value::Text(text)) => Value::Int(text.as_str().parse().ok()?),
        (Function::Uint, Value::Int(value)) => Value::Uint(value.try_into().ok()?),
        (Function::Uint, Value::Double(value)) => Value::Uint(whole(value)?.try_into().ok()?),
        (Function::Uint, Value::Text(text)) => Value::Uint(text.as_str().parse().ok()?),
        (Function::Double, Value::Int(value)) => Value::Double(value as f64),
        (Function::Double, Value::Uint(value)) => Value::Double(value as f64),
        (Function::Double, Value::Text(text)) => Value::Double(text.as_str().parse().ok()?),
        (Function::Text, Value::Int(value)) => value.to_string().into(),
        (Function::Text, Value::Uint(value)) => value.to_string().into(),
        (Function::Text, Value::Double(value)) => value.to_string().into(),
        (Function::Text, Value::Bool(value)) => value.to_string().into(),
        _ => return None,
    })
}

/// Truncates a double to an integer; `None` for NaN and infinity.
fn whole(value: f64) -> Option<i128> {
    value.is_finite().then_some(value as i128)
}
