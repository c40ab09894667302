package control

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/wire"
)

// passiveInterval is the interval at which clients' connections are evaluated.
const passiveInterval = time.Second

// poolKey names the backends of one service and address family.
type poolKey struct {
	service uint32
	is4     bool
}

// outlierDetector compares the backends of one service and address family: those that replace each other.
type outlierDetector struct {
	settings health.Passive
	eval     *health.Evaluator
	backends []uint32

	// Of UDP: silence is a failure only while other backends answer, because clients of one-way protocols
	// (syslog, NetFlow) expect no answer.
	silence *silence
}

// silence tells datagrams that a backend should have answered from those that none answers.
type silence struct {
	answered   uint64            // by all backends, at the last sample
	lastAnswer clock.Time        // when that last grew; 0 before
	seen       map[uint32]uint64 // unanswered, by backend, at the last sample
	excused    map[uint32]uint64 // the part of those that is no failure
}

func newSilence() *silence { return &silence{seen: map[uint32]uint64{}, excused: map[uint32]uint64{}} }

// forget forgets a backend: another one gets its number.
func (j *outlierDetector) forget(id uint32) {
	j.eval.Forget(id)
	if j.silence != nil {
		delete(j.silence.seen, id)
		delete(j.silence.excused, id)
	}
}

// excuse takes from the samples of a pool the unanswered datagrams of times in which no backend of it had
// answered any for a window.
func (q *silence) excuse(now clock.Time, window time.Duration, samples []health.Sample) {
	var answered uint64
	for i := range samples {
		answered += samples[i].Counts.Answered
	}
	if answered > q.answered {
		q.answered, q.lastAnswer = answered, now
	}
	oneWay := now.Sub(q.lastAnswer) > window
	for i := range samples {
		id, count := samples[i].ID, &samples[i].Counts.Unanswered
		if oneWay {
			q.excused[id] += *count - q.seen[id]
		}
		q.seen[id] = *count
		*count -= q.excused[id]
	}
}

// ejection is a backend that the outlier detector keeps new connections off.
type ejection struct {
	since, until time.Time
	cause        error
	all          bool // the connections it has move as well: those of UDP, which are any packets
}

// startPassive makes the detectors those of the configuration; those with the same settings go on. The
// caller holds g.mu.
func (g *Gateway) startPassive() {
	old := g.detectors
	g.detectors = map[poolKey]*outlierDetector{}
	for i := range g.cfg.Services {
		sv := &g.cfg.Services[i]
		if sv.Passive == nil {
			continue
		}
		for _, b := range backendsOf(sv) {
			key := poolKey{g.reg.services.of[sv.Name], b.at.Addr().Is4()}
			j := g.detector(key, *sv.Passive, old[key])
			if sv.Protocol == "udp" && j.silence == nil {
				j.silence = newSilence()
			}
			j.backends = append(j.backends, g.reg.backends.of[b])
		}
	}
}

// detector returns the detector of a pool in the new configuration, with what the old one knew if that was
// by the same settings.
func (g *Gateway) detector(key poolKey, settings health.Passive, old *outlierDetector) *outlierDetector {
	j := g.detectors[key]
	if j == nil {
		j = &outlierDetector{settings: settings}
		if old != nil && old.settings == settings {
			j.eval, j.silence = old.eval, old.silence
		} else {
			j.eval = health.NewEvaluator(settings)
		}
		g.detectors[key] = j
	}
	return j
}

// evaluateOutliers ejects backends and lets them return by the outcomes of their connections. The caller holds g.mu.
func (g *Gateway) evaluateOutliers(now clock.Time) {
	s := g.snap.Load()
	var list []health.Ejection
	for _, j := range g.detectors {
		samples := make([]health.Sample, len(j.backends))
		for i, id := range j.backends {
			b := s.Backends[id]
			samples[i] = health.Sample{
				ID: id, Up: g.takesNew(s, id),
				Counts: health.Counts{
					Answered: b.Count(datapath.Answered), Refused: b.Count(datapath.Refused),
					Unanswered: b.Count(datapath.Unanswered), Unreachable: b.Count(datapath.Unreachable),
				},
			}
		}
		if j.silence != nil {
			j.silence.excuse(now, j.settings.Window, samples)
		}
		list = append(list, j.eval.Sample(now, samples)...)
	}
	g.ejectionsChanged(list)
}

// takesNew reports whether a backend takes new connections, its ejection aside.
func (g *Gateway) takesNew(s *datapath.Snapshot, id uint32) bool {
	b, state := s.Backends[id], g.endpoints[id].state
	m := g.services[b.Service].backends[g.reg.labels[id].Name]
	return g.alive(id) && (state == config.StateActive || state == config.StateFilling) && m.share() > 0 &&
		s.Endpoints[b.Endpoint].Hop.State == datapath.HopReady
}

// ejectionsChanged enters what detectors decided. The caller holds g.mu.
func (g *Gateway) ejectionsChanged(list []health.Ejection) {
	if len(list) == 0 || g.closed {
		return
	}
	now := time.Now()
	for _, e := range list {
		if e.Ejected {
			g.ejected[e.ID] = &ejection{since: now, until: now.Add(e.For), cause: e.Cause, all: g.isUDP(e.ID)}
		} else {
			delete(g.ejected, e.ID)
		}
	}
	back := map[uint32]bool{}
	for _, e := range list {
		what := "ejected"
		if back[e.ID] = !e.Ejected; back[e.ID] {
			what = "returned"
		}
		g.report(g.event(e.ID, what, e.Cause))
	}
	g.usableChanged(back, "health")
}

// isUDP reports whether a backend serves datagrams.
func (g *Gateway) isUDP(id uint32) bool {
	s := g.snap.Load()
	return s.Endpoints[s.Backends[id].Endpoint].Proto == wire.ProtoUDP
}
