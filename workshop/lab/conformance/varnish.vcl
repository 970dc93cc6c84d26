# Varnish as a caching reverse proxy. ORIGIN is filled in. All rules are Varnish's own, from its builtin.vcl.
# run.mjs says on the command line what is not for VCL to say.
vcl 4.1;

backend default {
    .host = "127.0.0.1";
    .port = "ORIGIN";
}
