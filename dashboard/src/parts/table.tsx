/** A table of any length (virtual scrolling): the page contains only the rows in view and a few more. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Empty } from "./basics";

export interface Column<T> {
  title: string;
  /** A CSS grid track, such as `2fr` or `7rem`. */
  width: string;
  cell: (row: T) => ComponentChildren;
  end?: boolean;
  /** The value by which the table can be sorted. */
  sort?: (row: T) => string | number;
  /** Whether the column is left out on a narrow page, so that names stay readable. */
  wide?: boolean;
}

/** The width below which columns are left out. */
const NARROW = "(max-width: 46rem)";
/** The least width of the first column, which has the names. */
const FIRST_WIDTH = "6rem";

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const query = matchMedia(NARROW);
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return narrow;
}

/** The rows in the order of a column; equal ones keep their order. */
export function sorted<T>(rows: readonly T[], value: ((row: T) => string | number) | undefined, descending: boolean): readonly T[] {
  if (!value) return rows;
  const sign = descending ? -1 : 1;
  const keyed = rows.map((row) => ({ row, key: value(row) }));
  keyed.sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : 0));
  return keyed.map(({ row }) => row);
}

const ROW_HEIGHT = 34;
/** Number of rows that the page contains before and after those in view. */
const EXTRA_ROWS = 8;
/** Maximum number of rows, because browsers limit the height of an element; longer lists end with a note. */
const MAX_ROWS = 400_000;

export function Table<T>(props: {
  label: string;
  rows: readonly T[];
  columns: Column<T>[];
  id: (row: T) => string;
  empty: string;
  selected?: string;
  /** Number of rows in view. */
  height?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [order, setOrder] = useState({ title: "", descending: false });
  const narrow = useNarrow();
  const { label } = props;
  const columns = narrow ? props.columns.filter(({ wide }) => !wide) : props.columns;
  const value = columns.find(({ title }) => title === order.title)?.sort;
  const ordered = useMemo(() => sorted(props.rows, value, order.descending), [props.rows, order, value === undefined]);
  const rows = ordered.length > MAX_ROWS ? ordered.slice(0, MAX_ROWS) : ordered;
  const inView = props.height ?? 16;
  const height = Math.min(rows.length, inView) * ROW_HEIGHT;
  const first = Math.max(0, Math.min(Math.floor(top / ROW_HEIGHT), rows.length - inView) - EXTRA_ROWS);
  const last = Math.min(rows.length, first + inView + 2 * EXTRA_ROWS);
  const tracks = { gridTemplateColumns: columns.map(({ width }, at) => `minmax(${at === 0 ? FIRST_WIDTH : 0}, ${width})`).join(" ") };
  const direction = (title: string) => (title !== order.title ? "none" : order.descending ? "descending" : "ascending");

  // A shorter list may end before the old scroll position.
  useEffect(() => {
    if (box.current) setTop(box.current.scrollTop);
  }, [rows.length]);

  if (rows.length === 0) return <Empty>{props.empty}</Empty>;
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
      <div role="rowgroup">
        <div class="row head" role="row" aria-rowindex={1} style={tracks}>
          {columns.map(({ title, end, sort }) => (
            <span role="columnheader" class={end ? "end" : ""} key={title} aria-sort={sort && direction(title)}>
              {sort ? (
                <button type="button" class="plain" onClick={() => setOrder({ title, descending: title === order.title && !order.descending })}>
                  {title} {title === order.title && (order.descending ? "▾" : "▴")}
                </button>
              ) : (
                title
              )}
            </span>
          ))}
        </div>
      </div>
      <div
        class="scroll"
        role="rowgroup"
        tabIndex={0}
        aria-label={`${label}, rows`}
        ref={box}
        style={{ height: `${height}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <div class="space" role="presentation" style={{ height: `${rows.length * ROW_HEIGHT}px` }}>
          {rows.slice(first, last).map((row, index) => (
            <div
              key={props.id(row)}
              class={props.id(row) === props.selected ? "row selected" : "row"}
              role="row"
              aria-rowindex={first + index + 2}
              style={{ ...tracks, transform: `translateY(${(first + index) * ROW_HEIGHT}px)` }}
            >
              {columns.map(({ title, cell, end }) => (
                <span role="cell" class={end ? "end" : ""} key={title}>
                  {cell(row)}
                </span>
              ))}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
