import { defineConfig } from "vite";

/** The admin port of a running daemon, for `npm run dev`. */
const daemon = process.env.TRANSOM_ADMIN ?? "http://127.0.0.1:9990";

export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    // Names have no hash, because the daemon lists its files by name and the checked-in build is compared.
    rollupOptions: {
      output: {
        entryFileNames: "dashboard.js",
        assetFileNames: "dashboard[extname]",
        inlineDynamicImports: true,
      },
    },
    target: "es2020",
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    reportCompressedSize: true,
  },
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  server: {
    proxy: {
      "^/(v1|metrics)": {
        target: daemon,
        changeOrigin: true,
        // The daemon rejects requests of pages from other origins, such as vite's server.
        configure: (proxy) =>
          proxy.on("proxyReq", (request) => ["origin", "sec-fetch-site"].forEach((name) => request.removeHeader(name))),
      },
    },
  },
});
