package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/gpukern/choose"
)

// engineWords are the values of --engine.
var engineWords = func() (words []string) {
	for _, k := range choose.Kinds {
		words = append(words, string(k))
	}
	return words
}()

// checkEngine rejects other words.
func checkEngine(word string) error {
	if _, err := choose.ParseKind(word); err != nil {
		return coded{err, errUsage}
	}
	return nil
}

// openEngines opens what --engine names, before any device. With auto it prints what was found and what is
// used.
func openEngines(c *console, word string) (*choose.Opener, error) {
	o, err := choose.NewOpener(choose.OpenConfig{
		Kind: choose.Kind(word),
		Lost: func(err error) {
			c.complain(fmt.Errorf("the GPU has failed, the CPU does its work: %w", err))
		},
		Without: func(err error) {
			c.complain(fmt.Errorf("the GPU cannot be used, the CPU does all work: %w", err))
		},
	})
	if err != nil {
		return nil, engineError(err)
	}
	if word == string(choose.KindAuto) {
		c.complain(errors.New("engine " + o.String()))
	}
	return o, nil
}

// engineError adds a remedy to the error that no GPU can be used.
func engineError(err error) error {
	if errors.Is(err, choose.ErrNoGPU) {
		return fmt.Errorf("%w\n  `millrace doctor` says what is missing; --engine auto goes on without a GPU", err)
	}
	return err
}

// closing closes what at the end of a command and prints its error.
func closing(c *console, what io.Closer) {
	if err := what.Close(); err != nil {
		c.complain(err)
	}
}
