/** Terminal colours in the output of tasks. Other escape sequences are removed; nothing of them is executed. */

export interface Span {
  text: string;
  /** Names of classes, such as `bold fg1`. */
  style: string;
}

/** A sequence that begins with ESC: colours (group 1: the numbers), other control sequences, and titles of windows. */
const SEQUENCE = /\u001b(?:\[([0-9;]*)m|\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\))/g;

interface Style {
  foreground: string;
  background: string;
  bold: boolean;
  dim: boolean;
  underlined: boolean;
}

const PLAIN: Style = { foreground: "", background: "", bold: false, dim: false, underlined: false };

/** The style after a sequence with these numbers. */
function changed(style: Style, numbers: number[]): Style {
  let next = { ...style };
  for (let at = 0; at < numbers.length; at++) {
    const number = numbers[at] ?? 0;
    if (number === 0) next = { ...PLAIN };
    else if (number === 1) next.bold = true;
    else if (number === 2) next.dim = true;
    else if (number === 4) next.underlined = true;
    else if (number === 22) next.bold = next.dim = false;
    else if (number === 24) next.underlined = false;
    else if (number >= 30 && number <= 37) next.foreground = `fg${number - 30}`;
    else if (number >= 90 && number <= 97) next.foreground = `fg${number - 90}`;
    else if (number === 39) next.foreground = "";
    else if (number >= 40 && number <= 47) next.background = `bg${number - 40}`;
    else if (number >= 100 && number <= 107) next.background = `bg${number - 100}`;
    else if (number === 49) next.background = "";
    // Colours of larger palettes are not shown, and their numbers are no styles.
    else if (number === 38 || number === 48) at += numbers[at + 1] === 5 ? 2 : 4;
  }
  return next;
}

function classes({ foreground, background, bold, dim, underlined }: Style): string {
  return [foreground, background, bold && "bold", dim && "dim", underlined && "underlined"].filter(Boolean).join(" ");
}

/** Splits a text into parts of one style. */
export function spans(text: string): Span[] {
  const result: Span[] = [];
  let style = PLAIN;
  let at = 0;
  const add = (end: number) => {
    if (end > at) result.push({ text: text.slice(at, end), style: classes(style) });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    at = match.index + match[0].length;
    if (match[1] !== undefined) style = changed(style, match[1].split(";").map(Number));
  }
  add(text.length);
  return result;
}
