//! Tokens of an expression.

use super::Rejection;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// A name, or one of `true`, `false`, `null` and `in`.
    Name(&'t str),
    /// An integer without its sign.
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(String),
    Symbol(&'static str),
    End,
}

/// A token, and where it begins and ends.
#[derive(Clone, Debug)]
pub(super) struct Spanned<'t> {
    pub(super) token: Token<'t>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The symbols. A symbol precedes its own prefixes, so that the longest one matches.
const SYMBOLS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")", "[", "]",
    "{", "}", ",", ".",
];

/// The tokens of a text; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Spanned<'_>>, Rejection> {
    let mut lexer = Lexer { text, position: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.position;
        let token = lexer.token()?;
        let done = token == Token::End;
        tokens.push(Spanned {
            token,
            start,
            end: lexer.position,
        });
        if done {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += next.len_utf8();
        Some(next)
    }

    /// Takes the characters that satisfy a condition.
    fn while_(&mut self, condition: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let length = rest.find(|c| !condition(c)).unwrap_or(rest.len());
        self.position += length;
        rest.get(..length).unwrap_or_default()
    }

    fn reject<T>(&self, at: usize, reason: impl Into<String>) -> Result<T, Rejection> {
        Err(Rejection::at(self.text, at, reason.into()))
    }

    fn skip_blanks(&mut self) {
        loop {
            self.while_(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.while_(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token<'t>, Rejection> {
        let start = self.position;
        let rest = self.rest();
        let mut characters = rest.chars();
        let Some(first) = characters.next() else {
            return Ok(Token::End);
        };
        let second = characters.next();
        if matches!(first, '"' | '\'') {
            return self.string(false);
        }
        if matches!(first, 'r' | 'R') && matches!(second, Some('"' | '\'')) {
            self.next();
            return self.string(true);
        }
        if matches!(first, 'b' | 'B') && matches!(second, Some('"' | '\'')) {
            return self.reject(start, "found bytes, which are not supported; expected a string");
        }
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if first == '_' || first.is_ascii_alphabetic() {
            return Ok(Token::Name(
                self.while_(|c| c == '_' || c.is_ascii_alphanumeric()),
            ));
        }
        if let Some(symbol) = SYMBOLS.iter().copied().find(|symbol| rest.starts_with(symbol)) {
            self.position += symbol.len();
            return Ok(Token::Symbol(symbol));
        }
        let expected = match first {
            '=' => "==",
            '&' => "&&",
            '|' => "||",
            _ => return self.reject(start, format!("unexpected character {first:?}")),
        };
        self.reject(start, format!("found `{first}`, expected `{expected}`"))
    }

    fn number(&mut self) -> Result<Token<'t>, Rejection> {
        let start = self.position;
        let token = if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.position += 2;
            let digits = self.while_(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(digits, 16);
            self.integer(value.ok())
        } else {
            self.while_(|c| c.is_ascii_digit());
            let mut double = false;
            let mut following = self.rest().chars();
            if following.next() == Some('.') && following.next().is_some_and(|c| c.is_ascii_digit()) {
                double = true;
                self.next();
                self.while_(|c| c.is_ascii_digit());
            }
            if matches!(self.peek(), Some('e' | 'E')) {
                double = true;
                self.next();
                if matches!(self.peek(), Some('+' | '-')) {
                    self.next();
                }
                self.while_(|c| c.is_ascii_digit());
            }
            let written = self.text.get(start..self.position).unwrap_or_default();
            if double {
                let value = written.parse::<f64>().ok();
                value.filter(|value| value.is_finite()).map(Token::Double)
            } else {
                let value = written.parse::<u64>();
                self.integer(value.ok())
            }
        };
        let more = self.while_(|c| c == '_' || c.is_ascii_alphanumeric());
        match token {
            Some(token) if more.is_empty() => Ok(token),
            _ => {
                let written = self.text.get(start..self.position).unwrap_or_default();
                let reason = format!("found {}, expected a number of 64 bits", clip(written));
                self.reject(start, reason)
            }
        }
    }

    fn integer(&mut self, value: Option<u64>) -> Option<Token<'t>> {
        let value = value?;
        if matches!(self.peek(), Some('u' | 'U')) {
            self.next();
            Some(Token::Uint(value))
        } else {
            Some(Token::Int(value))
        }
    }

    /// Reads a string, beginning with its first quote.
    fn string(&mut self, raw: bool) -> Result<Token<'t>, Rejection> {
        let start = self.position;
        let rest = self.rest();
        let quotes = ["\"\"\"", "'''", "\"", "'"];
        let Some(quote) = quotes.into_iter().find(|quote| rest.starts_with(quote)) else {
            return self.reject(start, "expected a string");
        };
        self.position += quote.len();
        let mut value = String::new();
        loop {
            if self.rest().starts_with(quote) {
                self.position += quote.len();
                return Ok(Token::Text(value));
            }
            let at = self.position;
            match self.next() {
                Some('\n' | '\r') if quote.len() == 1 => {
                    return self.reject(start, "the string does not end in its line");
                }
                Some('\\') if !raw => value.push(self.escape(at)?),
                Some(c) => value.push(c),
                None => return self.reject(start, "the string does not end"),
            }
        }
    }

    /// Reads the escape sequence after a backslash.
    fn escape(&mut self, at: usize) -> Result<char, Rejection> {
        let digits = match self.next() {
            Some('a') => return Ok('\x07'),
            Some('b') => return Ok('\x08'),
            Some('f') => return Ok('\x0c'),
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('v') => return Ok('\x0b'),
            Some(c @ ('\\' | '?' | '"' | '\'' | '`')) => return Ok(c),
            Some('x' | 'X') => self.digits(2, 16),
            Some('u') => self.digits(4, 16),
            Some('U') => self.digits(8, 16),
            Some('0'..='3') => {
                self.position -= 1;
                self.digits(3, 8)
            }
            _ => None,
        };
        match digits.and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => self.reject(
                at,
                "found an invalid escape sequence; \
                 write \\\\ for a backslash, or r\"…\" for a string without escapes",
            ),
        }
    }

    fn digits(&mut self, count: usize, radix: u32) -> Option<u32> {
        let digits = self.rest().get(..count)?;
        if !digits.chars().all(|c| c.is_digit(radix)) {
            return None;
        }
        self.position += count;
        u32::from_str_radix(digits, radix).ok()
    }
}

/// Shortens a part of the expression for an error message.
pub(super) fn clip(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}
