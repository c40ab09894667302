package daemon

import (
	"net/http"
	"strconv"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/controlsocket"
	l7control "github.com/millrace/millrace/l7/control"
)

// showCaches returns the state of the caches.
func (d *Daemon) showCaches() (any, error) {
	if d.workers == nil {
		return l7control.CacheStatuses{Caches: []l7control.CacheStatus{}}, nil
	}
	return d.workers.Caches().Status(), nil
}

// showCacheObjects returns stored responses.
func (d *Daemon) showCacheObjects(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 {
		return nil, badRequest("limit is %q: say 1 or more", q.Get("limit"))
	}
	if d.workers == nil {
		return l7control.CacheList{Objects: []l7control.CacheObject{}}, nil
	}
	return d.workers.Caches().Objects(q.Get("cache"), q.Get("prefix"), limit)
}

// purgeCache removes stored responses.
func (d *Daemon) purgeCache(c *controlsocket.Commands, r *http.Request) (any, error) {
	var req admin.CachePurge
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if d.workers == nil {
		return nil, badRequest("the gateway has no listeners")
	}
	n, err := d.workers.Caches().Purge(req.Cache, req.URL, req.Prefix)
	c.Record("cache purge", err, "url", req.URL, "responses", n)
	return admin.CachePurged{Purged: n}, err
}
