package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// check reports what is wrong with an admin address beside the clients' address.
func (a adminConfig) check(bad *problems, listen string) {
	if a.Listen == "" {
		return
	}
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil {
		bad.add("admin.listen", quoted(a.Listen), "must be host:port, such as 127.0.0.1:8081, or empty for none")
		return
	}
	if _, public, err := net.SplitHostPort(listen); err == nil && port == public && port != "0" {
		bad.add("admin.listen", quoted(a.Listen), "must have another port than listen: what it shows is not for clients")
	}
	if !loopback(host) && !a.Exposed {
		bad.add("admin.listen", quoted(a.Listen), "must be a loopback address, or exposed: true must say that only your monitoring can reach it; whoever can may read the memory of the process")
	}
}

// scrapes is how many scrapes are served at the same time.
const scrapes = 4

// newAdmin makes the handler of the admin address: /metrics and /debug/pprof/.
// They are on no other handler.
func newAdmin(figures prometheus.Collector, exposed bool, log *zap.Logger) (http.Handler, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		figures, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: zap.NewStdLog(log), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes, Timeout: 10 * time.Second,
	}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if exposed {
		return mux, nil
	}
	return sameMachine(mux), nil
}

// sameMachine refuses requests that name another host than this machine. A page
// can make a browser here ask a loopback address under a name of its own, and
// would then read the answer.
func sameMachine(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !loopback(host) {
			http.Error(w, "this address answers to localhost only", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// serveAdmin serves the admin address until stop is called. Without an address
// it does nothing.
func serveAdmin(a adminConfig, figures prometheus.Collector, log *zap.Logger) (stop func() error, err error) {
	if a.Listen == "" {
		return func() error { return nil }, nil
	}
	h, err := newAdmin(figures, a.Exposed, log)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", a.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin.listen %s: %w", a.Listen, err)
	}
	srv := newServer(h)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin address is served no more", zap.Error(err))
		}
	}()
	log.Info("serving metrics and pprof", zap.String("address", ln.Addr().String()))
	return func() error {
		err := srv.Close()
		<-served
		return err
	}, nil
}
