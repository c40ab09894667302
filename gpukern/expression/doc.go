// Package expression finds regular expressions in streams of bytes by automata that a core and a GPU run
// alike: the same tables, the same matches.
//
//	expressions -> Compile -> groups, each a deterministic automaton -> Set.Scan, or gpukern/cuda.Expressions
//
// An automaton takes one step for each byte, whatever the expression and the text are: no text makes a
// search slower. The price is tables. The automaton of several expressions together has states for what any
// of them has read so far, and their number can grow as the product. So expressions share an automaton only
// while its table stays below a bound, and one that passes the bound alone is refused: it has to be matched
// in another way (filter/regex).
//
// Automata of three kinds have to see different parts of a text (kind):
//
//	filtered  sleeps until one of some literals of four bytes, which its matches begin with or soon have, comes by (filter)
//	begins    all matches begin where the text does: it is dead once there can be none
//	always    sees everything
//
// A search carries a word and a mask of each group from one piece of a stream to the next, so that it does not
// matter where a stream is cut. An expression is found once in a stream: where it first ends.
//
// The package is pure. A Set is immutable.
package expression
