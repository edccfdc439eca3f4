//! The image of the trial container and of the containers that hold the network of a task group: an
//! archive of two tiny static programs. It is built here, because the machine may have neither a
//! registry nor a suitable program.

/// The image's name. The number is raised when the content changes.
pub(super) const NAME: &str = "localhost/transom-minicluster:1";
/// The program that ends with status 0.
pub(super) const EXIT: &str = "/exit";
/// The program that waits until it is killed.
pub(super) const WAIT: &str = "/wait";

/// The address at which a program is loaded.
const LOAD_ADDRESS: u64 = 0x0040_0000;
/// The size of the ELF header and of the one program header.
const HEADERS_SIZE: u64 = 64 + 56;
/// The size of blocks in an archive.
const BLOCK_SIZE: usize = 512;

/// The machine code of both programs for one processor architecture.
struct Code {
    /// The architecture's number in ELF files.
    machine: u16,
    /// `exit(0)`.
    exit: &'static [u8],
    /// `ppoll(NULL, 0, NULL, NULL)` in a loop.
    wait: &'static [u8],
}

const X86_64: Code = Code {
    machine: 62,
    exit: &[
        0xb8, 60, 0, 0, 0, // mov eax, 60
        0x31, 0xff, // xor edi, edi
        0x0f, 0x05, // syscall
    ],
    wait: &[
        0x31, 0xff, // xor edi, edi
        0x31, 0xf6, // xor esi, esi
        0x31, 0xd2, // xor edx, edx
        0x45, 0x31, 0xd2, // xor r10d, r10d
        0x45, 0x31, 0xc0, // xor r8d, r8d
        0xb8, 0x0f, 0x01, 0, 0, // mov eax, 271
        0x0f, 0x05, // syscall
        0xeb, 0xeb, // jmp to the start
    ],
};

const AARCH64: Code = Code {
    machine: 183,
    exit: &[
        0x00, 0x00, 0x80, 0xd2, // mov x0, #0
        0xa8, 0x0b, 0x80, 0xd2, // mov x8, #93
        0x01, 0x00, 0x00, 0xd4, // svc #0
    ],
    wait: &[
        0x00, 0x00, 0x80, 0xd2, // mov x0, #0
        0x01, 0x00, 0x80, 0xd2, // mov x1, #0
        0x02, 0x00, 0x80, 0xd2, // mov x2, #0
        0x03, 0x00, 0x80, 0xd2, // mov x3, #0
        0x04, 0x00, 0x80, 0xd2, // mov x4, #0
        0x28, 0x09, 0x80, 0xd2, // mov x8, #73
        0x01, 0x00, 0x00, 0xd4, // svc #0
        0xf9, 0xff, 0xff, 0x17, // b to the start
    ],
};

/// The image as an archive of its files; `None` for an unsupported architecture.
pub(super) fn archive(processor: &str) -> Option<Vec<u8>> {
    let code = match processor {
        "x86_64" => &X86_64,
        "aarch64" => &AARCH64,
        _ => return None,
    };
    let mut archive = Vec::new();
    for (path, instructions) in [(EXIT, code.exit), (WAIT, code.wait)] {
        let program = program(code.machine, instructions);
        archive.extend(entry(path.trim_start_matches('/'), program.len()));
        archive.extend(&program);
        archive.resize(archive.len().next_multiple_of(BLOCK_SIZE), 0);
    }
    // Two empty blocks end an archive.
    archive.resize(archive.len() + 2 * BLOCK_SIZE, 0);
    Some(archive)
}

/// An ELF file with one segment, which starts with the headers.
fn program(machine: u16, instructions: &[u8]) -> Vec<u8> {
    let size = HEADERS_SIZE + instructions.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    let mut append = |bytes: &[u8]| file.extend_from_slice(bytes);
    append(&2_u16.to_le_bytes()); // an executable
    append(&machine.to_le_bytes());
    append(&1_u32.to_le_bytes());
    append(&(LOAD_ADDRESS + HEADERS_SIZE).to_le_bytes()); // the first instruction
    append(&64_u64.to_le_bytes()); // the program header follows
    append(&0_u64.to_le_bytes()); // no sections
    append(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        append(&half.to_le_bytes());
    }
    append(&1_u32.to_le_bytes()); // a segment to load,
    append(&5_u32.to_le_bytes()); // readable and executable
    for word in [0, LOAD_ADDRESS, LOAD_ADDRESS, size, size, 0x1_0000] {
        append(&word.to_le_bytes());
    }
    append(instructions);
    file
}

/// The header of an executable file in an archive.
fn entry(name: &str, size: usize) -> [u8; BLOCK_SIZE] {
    let mut header = [0; BLOCK_SIZE];
    let mut write = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    write(0, name);
    write(100, "0000755\0");
    write(108, "0000000\0");
    write(116, "0000000\0");
    write(124, &format!("{size:011o}\0"));
    write(136, "00000000000\0");
    write(148, "        ");
    write(156, "0");
    write(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::fs::PermissionsExt, process::Command};

    /// Unpacks the archive with the system's `tar`.
    fn unpack() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image.tar");
        let archive = archive(std::env::consts::ARCH).unwrap();
        std::fs::File::create(&file).unwrap().write_all(&archive).unwrap();
        let status = Command::new("tar")
            .arg("-xf")
            .arg(&file)
            .current_dir(dir.path())
            .status();
        assert!(status.unwrap().success());
        dir
    }

    #[test]
    fn archive_has_a_program_that_ends_and_one_that_waits() {
        let dir = unpack();
        for name in ["exit", "wait"] {
            let mode = std::fs::metadata(dir.path().join(name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o755, "{name}");
        }
        assert!(Command::new(dir.path().join("exit")).status().unwrap().success());
        let mut waits = Command::new(dir.path().join("wait")).spawn().unwrap();
        // A program that ends would have ended before the other one has started and ended.
        assert!(Command::new(dir.path().join("exit")).status().unwrap().success());
        assert_eq!(waits.try_wait().unwrap(), None);
        waits.kill().unwrap();
        assert!(!waits.wait().unwrap().success());
    }

    #[test]
    fn other_processors_have_no_archive() {
        assert!(archive("sparc64").is_none());
        assert!(archive("x86_64").is_some());
        assert!(archive("aarch64").is_some());
    }
}
