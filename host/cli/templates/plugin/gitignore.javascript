/node_modules/
/out/
