package control

import (
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/fastcgi"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/proxy"
)

// scriptLine is text that a script has written for the log.
type scriptLine struct{ pool, backend, text string }

const (
	maxScriptText  = 1 << 10 // bytes of it that are logged
	maxScriptLines = 64      // that wait; more are dropped
	scriptRate     = 20      // lines of a second
)

// fastCGI returns how requests of a pool become those of scripts. Its folder is opened anew at each reload: a deployment may have put
// another one in its place.
func fastCGI(s *Set, cfg *config.Config, c *config.Pool) (*proxy.FastCGI, error) {
	f := c.FastCGI
	out := &proxy.FastCGI{
		Scripts: fastcgi.Scripts{Extensions: f.Extensions, Index: f.Index, Fallback: f.Fallback}, Root: f.Root, Keep: f.Keep, Most: f.ContentBuffer,
		Log: scriptLog(s, c.Name),
	}
	for i := range f.Params {
		out.Params = append(out.Params, proxy.FastCGIParam{Name: f.Params[i].Name, Value: f.Params[i].Template()})
	}
	local := f.Local(cfg)
	if local == "" {
		return out, nil
	}
	site, err := files.Open(files.Options{Root: local})
	out.Site = site
	return out, err
}

// scriptLog returns what takes the text of scripts of a pool for the log. Loops call it, and never wait: what is too much is dropped.
func scriptLog(s *Set, pool string) func(backend string, text []byte) {
	return func(backend string, text []byte) {
		select {
		case s.scripts <- scriptLine{pool, strings.Clone(backend), strings.TrimSpace(string(text[:min(len(text), maxScriptText)]))}:
		default:
		}
	}
}

// watchScripts logs what scripts write, so many lines of a second at most: a script that fails in a loop must not fill the log.
func watchScripts(s *Set) {
	since, n := time.Now(), 0
	for {
		select {
		case <-s.ctx.Done():
			return
		case l := <-s.scripts:
			s.opt.Log.Warn("fastcgi", "pool", l.pool, "backend", l.backend, "stderr", l.text)
		}
		if now := time.Now(); now.Sub(since) >= time.Second {
			since, n = now, 0
		}
		if n++; n < scriptRate {
			continue
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(time.Until(since.Add(time.Second))):
		}
	}
}

// exceptScripts are the ends of names that a rule's folder does not serve: its scripts, where it leads to a pool that runs them.
func exceptScripts(cfg *config.Config, u *config.Rule) (ends []string) {
	for i := range cfg.Pools {
		p := &cfg.Pools[i]
		for _, ref := range u.BackendRefs {
			if ref.Name == p.Name && p.FastCGI != nil {
				ends = append(ends, p.FastCGI.Extensions...)
			}
		}
	}
	return ends
}
