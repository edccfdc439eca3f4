/** The address of a page: `#/apps/shop/web?tab=versions` names the page, an object on it, and filters. */

import { useEffect, useState } from "preact/hooks";

export interface Route {
  page: string;
  /** The object, without a slash before it; empty: none. */
  rest: string;
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page = "", ...rest] = path.split("/");
  return { page, rest: rest.map(decode).join("/"), query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of an object, whose id may contain slashes. */
export function link(page: string, id = ""): string {
  const parts = id.split("/").filter((part) => part !== "");
  return `#/${[page, ...parts.map(encodeURIComponent)].join("/")}`;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const onChange = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return route;
}

/** A value in the query of the address; an empty one is removed. It can be shared, and survives a reload. */
export function useQuery(name: string): [string, (value: string) => void] {
  const route = useRoute();
  const set = (value: string) => {
    const [path = "", query = ""] = location.hash.split(/\?(.*)/s);
    const parameters = new URLSearchParams(query);
    if (value) parameters.set(name, value);
    else parameters.delete(name);
    const text = parameters.toString();
    // Each letter of a filter is no step of the history.
    history.replaceState(null, "", text ? `${path || "#/"}?${text}` : path || "#/");
    dispatchEvent(new HashChangeEvent("hashchange"));
  };
  return [route.query.get(name) ?? "", set];
}
