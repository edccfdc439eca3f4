//! The fenced blocks of a page.

/// A fenced block.
pub(super) struct Block {
    /// The page and the line where the block begins: `docs/apps.md:12`.
    pub(super) place: String,
    /// The word after the fence, such as `sh`.
    pub(super) language: String,
    pub(super) text: String,
}

/// The blocks of a page in their order. The indentation of a fence in a list is removed from its block.
pub(super) fn blocks((page, text): &super::Page) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut indentation = None;
    for (number, line) in text.lines().enumerate() {
        let bare = line.trim_start();
        match indentation {
            None => {
                if let Some(language) = bare.strip_prefix("```") {
                    indentation = Some(line.len() - bare.len());
                    blocks.push(Block {
                        place: format!("{page}:{}", number + 1),
                        language: language.trim().to_owned(),
                        text: String::new(),
                    });
                }
            }
            Some(_) if bare.trim_end() == "```" => indentation = None,
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
    let found = blocks(&("p.md".to_owned(), text.to_owned()));
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.place.as_str(), it.language.as_str(), it.text.as_str()))
        .collect();
    assert_eq!(found, [("p.md:2", "sh", "one\n"), ("p.md:7", "toml", "x = 1\n")]);
}
