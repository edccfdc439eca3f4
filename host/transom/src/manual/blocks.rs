//! The fenced blocks of a page.

/// A fenced block.
pub(super) struct Block {
    /// The page and the line where the block begins: `docs/install.md:12`.
    pub(super) location: String,
    /// The word after the fence, such as `sh`.
    pub(super) language: String,
    pub(super) text: String,
}

/// The blocks of a page in their order. The indentation of a fence in a list is removed from its block.
pub(super) fn blocks((page, text): &super::Page) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut indentation = None;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        match indentation {
            None => {
                if let Some(language) = trimmed.strip_prefix("```") {
                    indentation = Some(line.len() - trimmed.len());
                    blocks.push(Block {
                        location: format!("{page}:{}", number + 1),
                        language: language.trim().to_owned(),
                        text: String::new(),
                    });
                }
            }
            Some(_) if trimmed.trim_end() == "```" => indentation = None,
            Some(indentation) => {
                let block = blocks.last_mut().expect("a block was begun");
                block.text += line.get(indentation..).unwrap_or_default();
                block.text.push('\n');
            }
        }
    }
    assert!(indentation.is_none(), "{page}: the last block has no end");
    blocks
}

#[test]
fn blocks_are_found_in_lists_too() {
    let text = "a\n```sh\none\n```\n1. b\n\n   ```toml\n   x = 1\n   ```\n";
    let actual = blocks(&("p.md".to_owned(), text.to_owned()));
    let actual: Vec<_> = actual
        .iter()
        .map(|it| (it.location.as_str(), it.language.as_str(), it.text.as_str()))
        .collect();
    assert_eq!(actual, [("p.md:2", "sh", "one\n"), ("p.md:7", "toml", "x = 1\n")]);
}
