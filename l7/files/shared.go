package files

import "golang.org/x/sys/unix"

// Budget bounds the files that are open for answers. Any goroutine may call its methods.
type Budget interface {
	TakeFile() bool // false where no more may be open
	ReturnFile()
}

// version identifies the content of a file: descriptors with the same version read the same bytes.
type version struct {
	dev, ino          uint64
	size              int64
	modified, changed unix.Timespec
}

// openFile is a file that is open for answers. Answers with the same version share its descriptor.
type openFile struct {
	site    *Site
	version version
	fd      int
	answers int // that use it; the Site's lock guards it
}

// share has an answer use the descriptor that others have of its file. If there is none, its own one is counted and kept for others:
// the error is EMFILE where no more may be open, or where the request takes no descriptor of its own.
func (s *Site) share(q *Request, a *Answer, st *unix.Stat_t) error {
	v := version{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.open[v]
	switch {
	case f != nil:
		a.Close()
	case q.Shared || s.opt.Budget != nil && !s.opt.Budget.TakeFile():
		a.Close()
		return unix.EMFILE
	default:
		f = &openFile{site: s, version: v, fd: a.fd}
		s.open[v] = f
	}
	f.answers++
	a.fd, a.file = f.fd, f
	return nil
}

// release ends the use by one answer.
func (f *openFile) release() {
	s := f.site
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.answers--; f.answers > 0 {
		return
	}
	delete(s.open, f.version)
	_ = unix.Close(f.fd)
	if s.opt.Budget != nil {
		s.opt.Budget.ReturnFile()
	}
}
