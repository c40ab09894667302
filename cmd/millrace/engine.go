package main

import (
	"slices"
)

// engineWords are the values of --engine.
var engineWords = []string{"cpu", "cuda", "auto"}

// checkEngine refuses what is none of them.
func checkEngine(word string) error {
	if !slices.Contains(engineWords, word) {
		return usage("no engine %q; say cpu, cuda or auto", word)
	}
	return nil
}
