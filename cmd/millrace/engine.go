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

// checkEngine refuses what is none of them.
func checkEngine(word string) error {
	if _, err := choose.ParseKind(word); err != nil {
		return coded{err, errUsage}
	}
	return nil
}

// openEngines opens what --engine asks for, before anything else is touched. With auto it tells what was
// found and what is used.
func openEngines(c *console, word string) (*choose.Opener, error) {
	o, err := choose.NewOpener(choose.OpenConfig{
		Kind: choose.Kind(word),
		Lost: func(err error) {
			c.complain(fmt.Errorf("the GPU is lost, the CPU does its work: %w", err))
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

// engineError adds what the user can do where no GPU can be used.
func engineError(err error) error {
	if errors.Is(err, choose.ErrNoGPU) {
		return fmt.Errorf("%w\n  `millrace doctor` says what is missing; --engine auto goes on without a GPU", err)
	}
	return err
}

// closing closes at the end of a verb what fails only after the result is printed.
func closing(c *console, what io.Closer) {
	if err := what.Close(); err != nil {
		c.complain(err)
	}
}
