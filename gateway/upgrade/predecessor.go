package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// variable is the environment variable with the number of the descriptor that a new process gets.
const variable = "MILLRACE_UPGRADE_FD"

// Limits of the new process, which ends where the old one does not go on.
const (
	offerLimit = 10 * time.Second
	serveLimit = time.Minute
)

// Predecessor is the old process, for the new one. Its methods are called by one goroutine.
type Predecessor struct {
	Offer
	executable *os.File // of Program, nil if there is none
	c          conn
	version    int
	sockets    []*inherited
}

// inherited is the body of a message with sockets.
type inherited struct {
	Kind Kind   `json:"kind"`
	At   string `json:"at,omitempty"`

	files []*os.File
}

// Inherit returns the process that this one replaces, nil if it replaces none. Programs that the process starts learn nothing of it.
func Inherit() (*Predecessor, error) {
	text := os.Getenv(variable)
	if text == "" {
		return nil, nil
	}
	_ = os.Unsetenv(variable)
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("$%s is %q, no descriptor (it is for millrace gateway upgrade alone: unset it)", variable, text)
	}
	return inherit(os.NewFile(uintptr(fd), "upgrade"))
}

// inherit receives the offer and the sockets.
func inherit(f *os.File) (*Predecessor, error) {
	c, err := newConn(f)
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	p := &Predecessor{c: c}
	if err := p.receive(); err != nil {
		p.Refuse(err, http.StatusConflict)
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	return p, nil
}

// receive receives what comes before prepared, to its end also where this process refuses: what is not read when a unix socket closes
// makes its other end fail, ahead of the messages that it has not read.
func (p *Predecessor) receive() (failed error) {
	until := time.Now().Add(offerLimit)
	for {
		m, err := p.c.receive(until)
		switch {
		case err != nil && (errors.Is(err, errGone) || errors.Is(err, os.ErrDeadlineExceeded)):
			return errors.Join(failed, err)
		case err != nil:
		case m.Kind == kindOffer:
			err = p.offered(&m)
		case m.Kind == kindSocket:
			err = p.socket(&m)
		case m.Kind == kindEnd:
			if p.Most == 0 {
				failed = errors.Join(failed, errors.New("there was no offer"))
			}
			return failed
		default:
			err = m.unknown()
		}
		if err != nil {
			m.close()
			failed = errors.Join(failed, err)
		}
	}
}

// offered takes the offer, and chooses the version: the highest that both know.
func (p *Predecessor) offered(m *message) error {
	if err := json.Unmarshal(m.Body, &p.Offer); err != nil {
		return err
	}
	v := min(p.Most, mostVersion)
	if v < p.Least || v < leastVersion {
		return fmt.Errorf("the running gateway (%s) speaks versions %d to %d of the format of upgrades, this program %d to %d: stop and start instead",
			p.Build, p.Least, p.Most, leastVersion, mostVersion)
	}
	p.version = v
	if p.Executable && len(m.files) == 1 {
		p.executable, m.files = m.files[0], nil
	}
	m.close()
	return nil
}

func (p *Predecessor) socket(m *message) error {
	s := &inherited{files: m.files}
	if err := json.Unmarshal(m.Body, s); err != nil {
		return err
	}
	if s.Kind == stateFile && len(s.files) == 1 {
		defer s.files[0].Close()
		text, err := io.ReadAll(s.files[0])
		p.State = text
		return err
	}
	p.sockets = append(p.sockets, s)
	return nil
}

// Take returns the files of a kind with what each is at, which are the caller's from then on. p may be nil.
func (p *Predecessor) Take(kind Kind, each func(at string, f *os.File)) {
	if p == nil {
		return
	}
	for _, s := range p.sockets {
		if s.Kind != kind {
			continue
		}
		for _, f := range s.files {
			each(s.At, f)
		}
		s.files = nil
	}
}

// Previous returns how the old process was started, and its executable, which may be nil.
func (p *Predecessor) Previous() (Program, *os.File) { return p.Program, p.executable }

// Refuse reports why this process does not take over. The old one goes on.
func (p *Predecessor) Refuse(err error, code int) {
	_ = p.c.send(kindRefused, &Refused{err.Error(), code}) // an old process that has ended learns nothing
	p.Close()
}

// Prepared reports that this process, of a version of the program, has all open and accepts nothing yet. It returns when the old process
// accepts nothing more, and closes what was not taken. An error means that this process must end.
// left are the UDP sockets that the old process goes on to read. The devices are free then, and their table is the caller's.
func (p *Predecessor) Prepared(build string, left []string) (s Suspended, err error) {
	p.drop()
	if err := p.c.send(kindPrepared, &prepared{Version: p.version, Build: build, Left: left}); err != nil {
		return s, err
	}
	m, err := p.c.receive(time.Now().Add(serveLimit))
	if err != nil {
		return s, err
	}
	defer m.close()
	if m.Kind != kindServe {
		return s, m.unknown()
	}
	if err := json.Unmarshal(m.Body, &s); err != nil {
		return s, err
	}
	if len(m.files) == 1 {
		s.Table, m.files = m.files[0], nil
	}
	return s, nil
}

// prepared is the body of a message.
type prepared struct {
	Version int      `json:"version"`
	Build   string   `json:"build"`
	Left    []string `json:"left,omitempty"` // addresses of UDP sockets
}

// Serving reports that this process serves, and returns when the old one leaves the sockets to it: by a message, or by its end.
func (p *Predecessor) Serving(s Served) {
	if p.c.send(kindServing, &s) == nil {
		_, _ = p.c.receive(time.Time{})
	}
}

// Close closes what was not taken, but for the executable.
func (p *Predecessor) Close() {
	p.drop()
	_ = p.c.Close()
}

func (p *Predecessor) drop() {
	for _, s := range p.sockets {
		for _, f := range s.files {
			f.Close()
		}
		s.files = nil
	}
}
