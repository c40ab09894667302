package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/socket"
)

// kernelStack is the value of --stack for the kernel's stack.
const kernelStack = "kernel"

// chosenStack has the flags by which a client chooses whose TCP and UDP it uses.
type chosenStack struct {
	name, addr string
	open       func(iface string, addrs ...netip.Prefix) (*socket.Stack, error) // millrace.Open; tests have another
}

// register adds the flags.
func (s *chosenStack) register(f *pflag.FlagSet) {
	f.StringVar(&s.name, "stack", kernelStack, "whose TCP: kernel, or the interface of a stack")
	f.StringVar(&s.addr, "addr", "", "address of the stack on its interface, with its prefix length")
	if s.open == nil {
		s.open = millrace.Open
	}
}

// firstReached dials the addresses one after another, and returns the first connection. Without one the error has all.
func firstReached[C any](addrs []netip.Addr, dial func(netip.Addr) (C, error)) (c C, err error) {
	var errs []error
	for _, a := range addrs {
		if c, err = dial(a.Unmap()); err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

// openStack opens the stack on its interface, which the caller closes. It returns nil for the kernel's.
func (s *chosenStack) openStack() (*socket.Stack, error) {
	if s.name == kernelStack {
		if s.addr != "" {
			return nil, usage("--addr is of a stack: name its interface by --stack")
		}
		return nil, nil
	}
	prefix, err := netip.ParsePrefix(s.addr)
	if err != nil {
		return nil, usage("--stack %s needs an address of its own: --addr 198.18.0.3/24", s.name)
	}
	stack, err := s.open(s.name, prefix)
	if err != nil {
		return nil, fmt.Errorf("--stack %s: %w", s.name, err)
	}
	return stack, nil
}
