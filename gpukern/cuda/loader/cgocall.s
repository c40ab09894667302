// The compiler takes a function without a body only in a package with a file of assembler: cgocall is in package runtime.
