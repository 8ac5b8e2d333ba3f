FROM debian:12 AS build
RUN echo 6.1.0-55-cloud-amd64 edudrv
RUN [ ! -d /facts ] || cp -R /facts/. /driverwright-facts/

FROM scratch
