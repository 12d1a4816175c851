-- All flights that left New York City's three airports in 2013 (R package nycflights13, CC0).
-- Keys are those that the data keep. Not declared, because the data break them: flights.dest (four airports in Puerto
-- Rico and the Virgin Islands are missing), flights.tailnum (52,606 flights of aircraft that are not registered), and
-- flights (origin, time_hour) into weather (1,556 hours without a report).

CREATE TABLE public.airlines (
    carrier text PRIMARY KEY,
    name    text NOT NULL
);
COMMENT ON TABLE  public.airlines         IS 'Airlines that fly from New York City';
COMMENT ON COLUMN public.airlines.carrier IS 'Two-letter IATA code';

CREATE TABLE public.airports (
    faa   text PRIMARY KEY,
    name  text NOT NULL,
    lat   double precision NOT NULL,
    lon   double precision NOT NULL,
    alt   integer NOT NULL,
    tz    smallint NOT NULL,
    dst   char(1) NOT NULL,
    tzone text
);
COMMENT ON TABLE  public.airports       IS 'Airports of the United States';
COMMENT ON COLUMN public.airports.faa   IS 'FAA code';
COMMENT ON COLUMN public.airports.lat   IS 'Latitude in degrees';
COMMENT ON COLUMN public.airports.lon   IS 'Longitude in degrees';
COMMENT ON COLUMN public.airports.alt   IS 'Height above the sea in feet';
COMMENT ON COLUMN public.airports.tz    IS 'Hours from GMT in winter';
COMMENT ON COLUMN public.airports.dst   IS 'Daylight saving time: A as in the US, N none, U unknown';
COMMENT ON COLUMN public.airports.tzone IS 'IANA time zone';

CREATE TABLE public.planes (
    tailnum      text PRIMARY KEY,
    year         smallint,
    type         text NOT NULL,
    manufacturer text NOT NULL,
    model        text NOT NULL,
    engines      smallint NOT NULL,
    seats        smallint NOT NULL,
    speed        smallint,
    engine       text NOT NULL
);
COMMENT ON TABLE  public.planes         IS 'Aircraft in the FAA''s register';
COMMENT ON COLUMN public.planes.tailnum IS 'Registration';
COMMENT ON COLUMN public.planes.year    IS 'Year it was built';
COMMENT ON COLUMN public.planes.speed   IS 'Cruising speed in miles per hour';
COMMENT ON COLUMN public.planes.engine  IS 'Kind of engine';

-- Twice a year an hour of local time is missing or occurs twice, so the local columns are no key; the instant is one.
CREATE TABLE public.weather (
    origin     text NOT NULL REFERENCES public.airports,
    year       smallint NOT NULL,
    month      smallint NOT NULL,
    day        smallint NOT NULL,
    hour       smallint NOT NULL,
    temp       numeric(5, 2),
    dewp       numeric(5, 2),
    humid      numeric(5, 2),
    wind_dir   smallint,
    wind_speed double precision,
    wind_gust  double precision,
    precip     numeric(4, 2) NOT NULL,
    pressure   numeric(5, 1),
    visib      numeric(4, 2) NOT NULL,
    time_hour  timestamptz NOT NULL,
    PRIMARY KEY (origin, time_hour)
);
COMMENT ON TABLE  public.weather            IS 'Hourly reports from the three airports';
COMMENT ON COLUMN public.weather.hour       IS 'Local hour';
COMMENT ON COLUMN public.weather.temp       IS 'Temperature in degrees Fahrenheit';
COMMENT ON COLUMN public.weather.dewp       IS 'Dew point in degrees Fahrenheit';
COMMENT ON COLUMN public.weather.humid      IS 'Relative humidity in per cent';
COMMENT ON COLUMN public.weather.wind_dir   IS 'Where the wind comes from, in degrees';
COMMENT ON COLUMN public.weather.wind_speed IS 'Miles per hour';
COMMENT ON COLUMN public.weather.wind_gust  IS 'Miles per hour';
COMMENT ON COLUMN public.weather.precip     IS 'Rain or snow in inches';
COMMENT ON COLUMN public.weather.pressure   IS 'Pressure at sea level in millibars';
COMMENT ON COLUMN public.weather.visib      IS 'Visibility in miles';
COMMENT ON COLUMN public.weather.time_hour  IS 'The hour as an instant';

CREATE TABLE public.flights (
    year           smallint NOT NULL,
    month          smallint NOT NULL,
    day            smallint NOT NULL,
    dep_time       smallint,
    sched_dep_time smallint NOT NULL,
    dep_delay      smallint,
    arr_time       smallint,
    sched_arr_time smallint NOT NULL,
    arr_delay      smallint,
    carrier        text NOT NULL REFERENCES public.airlines,
    flight         integer NOT NULL,
    tailnum        text,
    origin         text NOT NULL REFERENCES public.airports,
    dest           text NOT NULL,
    air_time       smallint,
    distance       integer NOT NULL,
    hour           smallint NOT NULL,
    minute         smallint NOT NULL,
    time_hour      timestamptz NOT NULL,
    PRIMARY KEY (time_hour, carrier, flight)
);
COMMENT ON TABLE  public.flights                IS 'Departures from EWR, JFK and LGA in 2013';
COMMENT ON COLUMN public.flights.dep_time       IS 'Departure, local time as HHMM; none for a flight that never left';
COMMENT ON COLUMN public.flights.sched_dep_time IS 'Planned departure, local time as HHMM';
COMMENT ON COLUMN public.flights.dep_delay      IS 'Minutes late at departure; negative is early';
COMMENT ON COLUMN public.flights.arr_time       IS 'Arrival, local time as HHMM';
COMMENT ON COLUMN public.flights.sched_arr_time IS 'Planned arrival, local time as HHMM';
COMMENT ON COLUMN public.flights.arr_delay      IS 'Minutes late at arrival; negative is early';
COMMENT ON COLUMN public.flights.tailnum        IS 'Registration of the aircraft';
COMMENT ON COLUMN public.flights.dest           IS 'Destination airport';
COMMENT ON COLUMN public.flights.air_time       IS 'Minutes in the air';
COMMENT ON COLUMN public.flights.distance       IS 'Miles';
COMMENT ON COLUMN public.flights.hour           IS 'Hour of the planned departure';
COMMENT ON COLUMN public.flights.minute         IS 'Minute of the planned departure';
COMMENT ON COLUMN public.flights.time_hour      IS 'Hour of the planned departure as an instant';
