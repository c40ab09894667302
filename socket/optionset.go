package socket

import "time"

// OptionSet has the options of a socket that is neither connected nor listens yet, for programs that carry setsockopt(2)
// over. Its values are checked as those of TCPConn.SetOption.
type OptionSet struct {
	o    TCPOptions
	idle time.Duration // of keepalive while that is off, see optionTarget
}

// NewOptionSet returns the defaults of the stack.
func (s *Stack) NewOptionSet() *OptionSet { return &OptionSet{o: s.defaults} }

// SetOption sets an option. Those that only a connection or listener has are ENOPROTOOPT.
func (p *OptionSet) SetOption(opt Option, v int) error {
	return optionTarget{&p.o, &p.idle}.apply(opt, v)
}

// Option returns an option.
func (p *OptionSet) Option(opt Option) (int, error) { return optionTarget{&p.o, &p.idle}.read(opt) }

// Change changes the options themselves.
func (p *OptionSet) Change(change func(o *TCPOptions)) { change(&p.o) }

// Apply is for Dialer.TCPOptions and ListenConfig.TCPOptions.
func (p *OptionSet) Apply(o *TCPOptions) { *o = p.o }
